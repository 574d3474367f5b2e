"""The federations of fmtc's own tests."""

from tests.federation.conftest import data, federation, lean, simulation  # noqa: F401
