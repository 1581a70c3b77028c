"""Private choice: the best of several candidates by score, and quantiles, by permute-and-flip and the exponential mechanism.

In the order of reading: ``rule`` (McKenna and Sheldon's permute-and-flip, the exponential mechanism and report noisy max: laws, privacy, exact release, audit), ``optimum`` (`PrivateChoice`,
the best rule or the optimal table for small counts, a problem of ``mechdesign.model`` with its proof), ``quantile`` (`PrivateQuantile`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
