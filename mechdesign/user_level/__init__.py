"""User-level privacy in the earth mover's distance (Imola, Roy Chowdhury and Chaudhuri 2024).

The notions (`EMDPrivacy` and its kin), linear queries and their releases, the item-wise shuffled release, the reduction
from datasets of any sizes, frequency estimation with proved errors, and the best unbiased histogram of all users (`histogram`). Imports `channels`, `noise`, `accounting`,
`spaces` and the floors below.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
