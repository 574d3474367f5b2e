"""Who wins: every method on every data set under one protocol, cell by cell. ``python -m fmtc_bench.compare smoke``."""
