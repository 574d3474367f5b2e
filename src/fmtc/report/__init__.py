"""The page of a run: what needs the rows (`study`), everything it says (`summarise`), one HTML file (`render`)."""

from .inline import model_html, write_report
from .page import needs_jinja, render, write_page
from .rows import study
from .summary import summarise

__all__ = ["model_html", "needs_jinja", "render", "study", "summarise", "write_page", "write_report"]
