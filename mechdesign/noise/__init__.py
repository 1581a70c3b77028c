"""Additive noise: families of laws calibrated to a requirement, scales and covariances for vectors, and the optimum.

From Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*:
``allocation``, with profiles and closed forms in ``separable``, problems and proofs in ``scales_problem``, their solution
in ``scales_solving`` and ``lagrangian``, the mechanism in ``vector_noise`` and its exact draws in ``release``;
``coordinate_noise`` for a law on each coordinate. Noise drawn together: ``correlated`` and ``covariance_problem`` for
covariances (``fixed_point``, ``covariance_bound``, ``correlated_noise``), ``changes`` and ``strategies`` for counts and
streams, ``buffered_noise`` for long streams, ``knorm`` and ``knorm_noise`` (``radial``, ``balls``). From *Grafting Laplace
and Gaussian distributions*: ``laws``, ``families``, ``additive`` and ``calibration`` (``calibration_search``). From Geng
and Viswanath, and Selvi, Liu and Wiesemann, *Differential privacy via distributionally robust optimization*: ``optimal``
(``lattice``, ``noise_bounds``) with noise on cells (``cell_noise``).
The wing stands on accounting, the privacy notions and the solvers, and imports nothing above it and
no other wing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
