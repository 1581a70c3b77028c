"""Vectors under one budget: a whole gradient sent privately in a few bits, unbiased, with its exact error.

`VectorQuantizer` chooses between the rotated simplex (`SphereQuantizer`), sampled coordinates (`SampledCoordinates`) and their signs sent
together (`SampledSigns`), and proves how far from the best possible, the cap (`PrivUnit`), it is. They encode vectors as bytes, decode and add them up;
`IntegerTable` is a scalar quantizer in integers, in Python and in C. Imports `quantizers`, `accounting`, `problem`, `solvers` and
`evidence`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
