"""The language: a mechanism is declared as an optimization model, solved by any registered solver, and delivered exact and proved.

A `Table` is the unknown; a `Problem` is an objective and constraints on it, CVXPY's own. What is declared is what is solved, and what is solved
is repaired in exact arithmetic, released, audited, saved and checked. Searches over a `Grid` of such problems run in parallel, and
continue after a kill as if they had not been interrupted.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
