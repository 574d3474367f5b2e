"""The graph view: its states, its phases from the opening to the end."""
