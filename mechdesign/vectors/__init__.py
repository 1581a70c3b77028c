"""Vectors under one budget: unbiased private reports of a whole gradient in a few bits, with their exact error.

`VectorQuantizer` chooses between the rotated simplex (`sphere`), random directions (`directions`), sampled coordinates and their signs sent together
(`sampled`), and proves the distance from the optimum, the cap (`design`). The mechanisms encode vectors as bytes, decode and add them up (`coded`), in C
too; `IntegerTable` is a scalar quantizer in integers, in Python and in C (`export`); `flower` is a strategy for Flower. Published mechanisms are
in the study `vectors`. Imports `quantizers`, `problem`, `solvers` and `evidence`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
