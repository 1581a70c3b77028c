"""Privacy loss of a release, exact or between proved bounds.

`privacy_profile` is the exact δ(ε) of one coordinate of additive noise, `gaussian_profile` that of Gaussian noise in any
number of dimensions (Balle and Wang 2018), `delta_interval` an interval for many coordinates, rounds and samples
(Doroshenko et al. 2022, with its counterpart from below), `amplification` and `shuffled_alpha` bound shuffling
under metric privacy (Imola, Roy Chowdhury and Chaudhuri 2024), `to_pld` is the bridge to dp-accounting (extra ``pld``).
Laws make these exact by the methods of `mechdesign.accounting.losses.NoiseLaw`.

Imports `problem`, `evidence` and the modules below them; the wings import it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
