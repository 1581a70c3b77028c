"""mechdesign designs differential-privacy mechanisms by optimization, and proves what it delivers."""

from mechdesign import solvers
from mechdesign.audit.certificate import Certificate
from mechdesign.designs.family_search import ERM, RQM
from mechdesign.designs.mvu import MVU
from mechdesign.designs.optm import OPTM
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, ResultFormatError, SolverError
from mechdesign.losses import Loss
from mechdesign.mechanisms.quantizer import Quantizer
from mechdesign.priors import Prior, clipped, truncated
from mechdesign.privacy import ApproximateDP, MetricDP, PureDP, ZeroConcentratedDP
from mechdesign.results import Result, load
from mechdesign.search.grid import Grid
from mechdesign.search.optm_search import OPTMSearch
from mechdesign.serialize import result_schema

__version__ = "0.1.0"

__all__ = [
    "ERM",
    "MVU",
    "OPTM",
    "RQM",
    "ApproximateDP",
    "Certificate",
    "DesignError",
    "Grid",
    "InfeasibleError",
    "Loss",
    "MechdesignError",
    "MetricDP",
    "OPTMSearch",
    "Prior",
    "PureDP",
    "Quantizer",
    "Result",
    "ResultFormatError",
    "SolverError",
    "ZeroConcentratedDP",
    "clipped",
    "load",
    "result_schema",
    "solvers",
    "truncated",
]
