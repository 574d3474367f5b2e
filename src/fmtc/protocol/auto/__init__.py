"""The view chosen on the way: a plan of two views, and what decides."""
