"""What server and clients say to each other: one file per phase, and the method that puts them in order."""
