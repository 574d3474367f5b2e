"""The laboratory of fmtc: methods to compare with, data sets, comparisons and audits. fmtc itself never imports it."""

__version__ = "0.1.0"
