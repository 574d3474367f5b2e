"""After a run: newcomers that upload nothing, new rows, silos that leave, federations that become one."""

from .models import join_later, merge

__all__ = ["join_later", "merge"]
