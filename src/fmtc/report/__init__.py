"""The page of a run: what needs the rows (`study`), everything it says (`summarise`), one HTML file (`render`)."""

from .page import needs_jinja, render, write_page
from .rows import study
from .summary import summarise

__all__ = ["needs_jinja", "render", "study", "summarise", "write_page"]
