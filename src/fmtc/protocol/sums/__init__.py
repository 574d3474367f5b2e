"""Views of which the server sees sums over silos only."""
