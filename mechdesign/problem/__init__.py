"""What is asked: the privacy notion, the prior of the inputs, the loss of an error, and what every design promises.

``privacy`` holds pure, approximate, zero-concentrated and metric differential privacy, and puts questions into words; ``priors`` and ``losses`` integrate
polynomial losses against any law of the inputs, cell by cell; ``spine`` holds the base class and solve loop of all designs;
``checks`` turns arguments into proper values or names what is wrong with them.

May import solvers and evidence (the protocol names models and results), errors, plotting and typing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
