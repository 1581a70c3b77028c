"""mechdesign designs differential-privacy mechanisms by optimization, and proves what it delivers.

The designs, privacy notions, `calibrate`, `load` and the errors are here; the rest is in the wings: ``md.quantizers``,
``md.noise``, ``md.channels``, ``md.choice``, ``md.user_level``, ``md.accounting``, ``md.spaces``, ``md.vectors``, ``md.learning``,
``md.solvers``. Names load when used.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
