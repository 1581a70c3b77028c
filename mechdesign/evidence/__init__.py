"""What may be called proved: results, certificates, exact arithmetic, and the files that carry them.

Every design returns a `Result`. Its `Certificate` holds a question, a law, two numbers and their proofs, which are
checked without the solver. ``exact`` encloses numbers that doubles cannot hold, ``sampling`` draws integers from
the operating system's randomness, ``serialize`` reads and writes result files as data.

Of the package it imports solvers, errors, plotting and typing only: evidence does not depend on any design.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
