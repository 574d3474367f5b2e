"""The page of a comparison."""
