"""Additive noise: families of laws calibrated to a requirement, scales and covariances for vectors, and the optimum.

The files of each paper, in the order of reading:

* Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity* (P1 to P4): ``allocation`` (model),
  ``separable`` (Theorems 4 and 5, the worst change), ``scales_problem`` (proof, audit), ``lagrangian`` (lower bound), ``vector_noise`` (mechanism,
  release). Problems with rows of one's own are solved in ``scales_solving``; ``coordinate_noise`` has a law for each coordinate.
* Muthukrishnan and Kalyani, *Grafting Laplace and Gaussian distributions* (flipped Huber): ``laws`` (the density and its privacy loss), ``calibration`` (model,
  proof, lower bound, audit), ``calibration_search`` (the budget consumed, shape and scale), ``families`` (Theorems 8 and 9), ``additive`` (mechanism, release).
* Geng and Viswanath, *The optimal noise-adding mechanism*; Selvi, Liu and Wiesemann, *Differential privacy via distributionally robust optimization*:
  ``optimal`` (model, closed forms, audit), ``lattice`` (programs on masses), ``noise_bounds`` (lower bounds), ``cell_noise`` (mechanism, release).
* Correlated Gaussian noise and the matrix mechanism: ``correlated`` (model, proof, audit), ``fixed_point`` (solution), ``covariance_bound`` (lower bound), ``changes`` (what
  one person changes), ``correlated_noise`` (mechanism, release); ``covariance_problem`` for rows of one's own, ``strategies`` and ``buffered_noise`` for streams.
* Hardt and Talwar, K-norm noise: ``knorm`` (model, proof, audit), ``knorm_noise`` (mechanism, release), ``radial`` (its profile), ``balls`` (its norms).

``release`` draws all of these exactly. The wing stands on accounting, the privacy notions and the solvers, and imports
nothing above it and no other wing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
