"""Solver backends behind one registry; see `available` for what is installed and what each can do."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
