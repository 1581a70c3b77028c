"""Studies of the wing ``channels``."""
