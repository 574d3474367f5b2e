"""Moves messages, keeps files and counts bytes; contains no formula."""
