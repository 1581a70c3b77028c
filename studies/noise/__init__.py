"""Studies of the wing ``noise``."""
