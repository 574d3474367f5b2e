"""The browser of fmtc's own tests."""

from tests.browser.conftest import driver, opened  # noqa: F401
