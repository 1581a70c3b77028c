"""Local privacy in a few bits: mechanisms that map an interval to finitely many values.

The files of each paper, in the order of reading; `proofs` holds the question, the proof and the audit that all share, `mechanism` the mechanism:

* OPTM, *Privacy-Aware Randomized Quantization via Linear Programming*: ``optm`` (the design, Algorithm 2), ``selection_program`` (the unknown, Theorems 4 to 6, Lemma 1, boxes),
  ``selection_problem`` (search of boxes, repair), ``proofs`` (proof, audit), ``mechanism`` (release). Beyond four bins ``descent`` solves the bilinear problem.
* RQM (Youn et al. 2023), ERM and the biased extension: ``families`` (the families and the search of their parameters), ``mechanism``, ``proofs``, ``biased``.
* MVU (Chaudhuri, Guo and Rabbat 2022): ``mvu``.
* The least loss of all ε-LDP mechanisms: ``optimal`` (the design), ``floors`` (the best mechanism for given floors), ``newton`` and ``planes`` (the best floors), ``bins`` (where
  to put the outputs), ``dual_pieces`` (lower bound).
* Metric and approximate local privacy: ``metric``, ``pairwise``. Somebody else's table: ``printed_table``.

``sampling`` draws; ``table`` holds tables of probabilities and laws in rationals; ``moments`` integrates against the prior. Nothing in ``mechanism`` and below knows a solver. May import
``problem``, ``model``, ``solvers`` and ``evidence``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
