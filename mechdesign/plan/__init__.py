"""One privacy budget for everything that is released: named tasks over the same people, the plan of least error, and the ledger.

``tasks`` says what is asked, ``search`` chooses noise and scales from a menu, ``bound`` what no plan costs less than, ``design`` is the
plan, ``mechanism`` the release and its proof. ``ledger`` keeps, in a file, what has been released and what of the budget is left.

May import every wing; only the command line stands above.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
