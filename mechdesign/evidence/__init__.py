"""What may be called proved: results, certificates, exact arithmetic, and the files that carry them.

`Result` is what every design returns, `Certificate` what it proves: a question, a law, two numbers and the proofs that speak
of them, checked without the solver. ``exact`` encloses what doubles cannot hold, ``sampling`` draws integers from
the operating system's randomness, ``serialize`` reads and writes result files as data.

Imports nothing of the package but solvers, errors, plotting and typing: evidence does not know what it is evidence of.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
