"""User-level privacy in the earth mover's distance (Imola, Roy Chowdhury and Chaudhuri 2024).

``privacy`` has the notions (`EMDPrivacy` and its kin), ``linear_release`` PrivEMDLinear, ``itemwise`` PrivEMDItemWise, proved in `accounting.shuffling`, and
BoundedEMDReduction, ``frequency`` the estimates from reports with proved errors, ``histogram`` the best unbiased histogram of all users, with the certificate, audit and lower bound of all these releases.
Imports `channels`, `noise`, `accounting`, `spaces` and the floors below.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
