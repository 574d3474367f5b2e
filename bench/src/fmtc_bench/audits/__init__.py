"""Audits: what the messages of a run tell of single records, measured by playing the server."""
