"""What server and clients say to each other: phases, and the methods that put them in order."""
