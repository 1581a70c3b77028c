"""Studies of metric-private channels."""
