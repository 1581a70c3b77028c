"""Local privacy in a few bits: mechanisms that map an interval to finitely many values.

``optm``: the selection family by linear programming (*Privacy-Aware Randomized Quantization via Linear Programming*), and its
biased extension; ``optimal``: the least loss of all mechanisms, with a proof; ``metric``: metric and approximate privacy; RQM
(Youn et al. 2023), ERM and MVU (Chaudhuri et al. 2022). All make the mechanisms of ``mechanism``; what they share is in
``common``. May import ``problem``, ``runs``, ``solvers`` and ``evidence``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
