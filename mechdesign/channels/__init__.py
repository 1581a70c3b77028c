"""Channels on finite sets: probabilities of reports given items, private with respect to a metric.

`Channel` is a matrix with its exact metric loss; `ClusteredResponse`, `KaryResponse` and `HadamardResponse` have fast
transforms; `planar_laplace` is the baseline of location privacy. `MetricChannel` designs the channel of least expected
loss with its certificate (Bordenabe, Chatzikokolakis and Palamidessi 2014). Imports `spaces`, `problem`, `solvers` and
`evidence`; user_level builds on it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
