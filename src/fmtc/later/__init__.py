"""After a run: newcomers that upload nothing, and new rows."""

from .join import join_later

__all__ = ["join_later"]
