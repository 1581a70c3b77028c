"""What was once promised and broken, printed: the cases of ``tests/faults/test_every_fault.py``."""
