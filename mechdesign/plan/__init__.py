"""One privacy budget for all releases: named tasks over the same people, the plan of least error, and the ledger.

``tasks`` holds the tasks, ``search`` chooses noise and scales from a menu, ``bound`` computes lower bounds, ``design`` is the
plan, ``mechanism`` the release and its proof. ``ledger`` records, in a file, the releases and the rest of the budget.

May import every wing; only the command line imports this one.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
