"""Studies of vectors under one budget."""
