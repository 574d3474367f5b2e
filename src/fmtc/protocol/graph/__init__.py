"""The graph view: its states, and one file for each phase."""
