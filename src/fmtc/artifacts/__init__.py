"""Folders and files that last: models, runs, checkpoints; written whole or not at all."""
