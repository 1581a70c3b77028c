"""Private choice: the best of several candidates by score, and quantiles, by permute-and-flip and the exponential mechanism."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
