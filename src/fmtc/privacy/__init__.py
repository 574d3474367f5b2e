"""The way out of a client: the outbox, its ledger, and the rules an answer must meet."""
