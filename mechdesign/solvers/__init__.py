"""Solver backends behind one registry; `available` says what is installed and what each can do.

A `Model` is a CVXPY problem with a name for each constraint family; `solve` hands it to a backend, keeps the time limit
whichever answers, and translates statuses once. A `LinearProgram` holds one program in numbers and solves it many times, while
it grows and its numbers change; `proved_bound` makes a lower bound of any duals.

Imports nothing of the package but errors, plotting and typing; nothing else imports ``highspy``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
