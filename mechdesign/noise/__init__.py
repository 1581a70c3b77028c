"""Additive noise: families of laws calibrated to a requirement, scales and covariances for vectors, and the optimum.

From Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*
(``allocation``, with closed forms in ``separable``, ``scales_problem`` for what is declared, proved and printed, ``scales_solving`` and ``lagrangian``,
``vector_noise`` for the mechanism, ``release`` for its exact draws; ``coordinate_noise``; ``correlated`` for covariances, ``knorm``, ``buffered_toeplitz`` for long streams) and *Grafting Laplace and Gaussian distributions* (``laws``, ``families``, ``calibration``), and from Geng and Viswanath and
Selvi, Liu and Wiesemann, *Differential privacy via distributionally robust optimization* (``optimal``: ``staircase_dual``, ``lattice``). It stands on
accounting, the privacy notions and the solvers, and imports nothing above it and no other wing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
