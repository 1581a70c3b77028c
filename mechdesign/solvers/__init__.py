"""Solver backends behind one registry; `available` says what is installed and what each can do.

A `Model` is a CVXPY problem with a name for each constraint family; `solve` hands it to a backend, keeps the time limit
whoever answers, and translates statuses once. `CompiledLP`, `HighsSession` and `SolveSequence` solve one program many
times, `GrowingProgram` adds rows and columns between solves, `proved_bound` makes a lower bound of any duals.

Imports nothing of the package but errors, plotting and typing; nothing else imports ``highspy``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
