"""After a run: newcomers that upload nothing, and new rows."""

from .models import join_later

__all__ = ["join_later"]
