"""Published mechanisms for the mean of vectors, simulated in floating-point numbers to compare with.

Their stated errors are exact or upper bounds, and their budgets are proved from Rényi divergences; none of them is for release.
"""

from .discrete_gaussian import DistributedDiscreteGaussian
from .interpolated_mvu import InterpolatedMVU
from .poisson_binomial import PoissonBinomial
from .skellam import Skellam
from .sqkr import SQKR

__all__ = ["SQKR", "DistributedDiscreteGaussian", "InterpolatedMVU", "PoissonBinomial", "Skellam"]
