"""Local privacy in a few bits: mechanisms that map an interval to finitely many values.

Read `proofs` (the question that all share, and what is proved of it), then one system. OPTM (*Privacy-Aware Randomized Quantization via Linear Programming*): `optm` asks,
`selection_program` states the paper's unknown, theorems and Lemma 1, `selection_problem` solves, repairs and proves; up to four bins it searches a grid of
boxes, beyond the bilinear problem is followed down (`descent`). The least loss of all ε-LDP mechanisms: `optimal` asks; `floors` (the best mechanism for
given floors, and what is proved of them), `newton` (the methods), `bins` (where to put the outputs). Metric and approximate privacy: `metric`.
RQM, ERM and the biased extension: `families`; MVU: `mvu`. All make the mechanisms of `mechanism`, drawn from in `sampling`, with the laws of
`exact_law`; `dual_pieces` and `moments` prove what they claim. Nothing in `mechanism` and below knows a solver. May import ``problem``, ``model``, ``solvers`` and ``evidence``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
