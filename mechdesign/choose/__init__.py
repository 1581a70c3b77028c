"""Tasks over all wings: which mechanism for this question, how large its error is, how little privacy an error needs.

``questions`` says what may be asked (numbers from a central data set, a report of one person, points of a metric space),
``candidates`` which mechanisms answer it, ``comparing`` tries them all, ``comparison`` is what comes back.

May import every wing; only the command line stands above.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
