"""The modelling language: mechanisms are declared as optimization models, solved by any registered solver, and returned exact and proved.

A `Table` is the unknown; a `Problem` is an objective and constraints on it, CVXPY's own. The declared problem is the one solved, and its
solution is repaired in exact arithmetic, released, audited, saved and checked. Searches over a `Grid` of such problems run in parallel, and
continue after a kill as if they had not been interrupted.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
