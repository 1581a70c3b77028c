"""What is asked: privacy notions, priors, losses, and the protocol that every design follows.

A design is a question in these words (how private, what inputs, what an error costs) and an answer that solvers give.
Nothing here solves. Imports errors, `typing`, and `evidence` for what is written to files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
