"""Studies of the wing ``user_level``."""
