"""What the author of a mechanism imports: the spine, proofs, checks, exact arithmetic, exact draws, files and comparisons.

The guide *Write a design* shows a whole mechanism that is made of these.
"""

import lazy_loader

# the package's name, as the stub's imports begin there
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__package__, __file__)
