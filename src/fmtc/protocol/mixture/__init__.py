"""The mixture view: its states, its phases and the method."""
