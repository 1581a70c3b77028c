"""Choose a mechanism for a question across all wings: compare mechanisms, compute errors, find the least ε for an error.

``questions`` defines the questions (numbers from a central data set, a report of one person, points of a metric space),
``candidates`` the mechanisms that answer them, one by one; ``comparison`` tries them all and holds the outcome.

May import every wing; only the command line imports this one.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
