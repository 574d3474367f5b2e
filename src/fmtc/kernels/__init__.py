"""The paper's formulas: arrays in, arrays out. No clients, rounds, configuration, logging or files."""
