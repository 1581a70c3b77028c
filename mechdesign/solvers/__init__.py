"""Solver backends behind one registry; `available` lists which are installed and what each can do.

`solve` passes a CVXPY problem, whose families of rows have names (`mechdesign.named`), to a backend, enforces the time limit
for all of them, and translates statuses once. A `LinearProgram` holds one program in numbers and solves it many times, while
it grows and its numbers change.

Imports nothing of the package but errors, plotting and typing; nothing else imports ``highspy``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
