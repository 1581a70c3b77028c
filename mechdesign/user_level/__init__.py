"""User-level privacy in the earth mover's distance (Imola, Roy Chowdhury and Chaudhuri 2024).

In the order of reading: ``linear_release`` (the notions, `EMDPrivacy` and its kin, and PrivEMDLinear with its release), ``itemwise`` (PrivEMDItemWise and
BoundedEMDReduction; the proof by shuffling is in `accounting.shuffling`), ``frequency`` (estimates from reports, Theorems 6.5 and 6.6), ``histogram`` (the best
unbiased histogram of all users: certificate, audit and lower bound of all these releases). The distance itself is in ``spaces``, item mechanisms in ``channels``.
Imports `channels`, `noise`, `accounting`, `spaces` and the floors below.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
