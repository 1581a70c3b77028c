"""Studies of private choice."""
