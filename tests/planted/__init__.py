"""Faults planted by hand, one at a time, that the fast tests must find."""
