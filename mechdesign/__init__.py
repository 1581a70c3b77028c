"""mechdesign designs differential-privacy mechanisms by optimization, and proves what it delivers."""

from mechdesign.errors import DesignError, InfeasibleError, ResultFormatError, SolverError
from mechdesign.privacy import ApproximateDP, MetricDP, PureDP, ZeroConcentratedDP

__version__ = "0.1.0"
