"""Files and folders that last: models, runs, checkpoints; written completely or not at all."""
