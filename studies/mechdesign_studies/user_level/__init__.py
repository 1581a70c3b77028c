"""Studies of user-level metric privacy."""
