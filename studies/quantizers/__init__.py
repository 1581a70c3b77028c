"""Studies of the wing ``quantizers``."""
