"""Solver backends behind one registry; `available` says what is installed and what each can do.

`solve` hands a CVXPY problem, whose families of rows have names (`mechdesign.named`), to a backend, keeps the time limit
whichever answers, and translates statuses once. A `LinearProgram` holds one program in numbers and solves it many times, while
it grows and its numbers change; `proved_bound` makes a lower bound of any duals.

Imports nothing of the package but errors, plotting and typing; nothing else imports ``highspy``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
