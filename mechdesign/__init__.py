"""mechdesign designs differential-privacy mechanisms by optimization, and proves what it delivers."""

from mechdesign import solvers
from mechdesign.accounting.shuffling import (
    Amplification,
    amplification,
    calibrate_item_alpha,
    clone_divergence,
    shuffled_alpha,
)
from mechdesign.audit.certificate import Certificate
from mechdesign.designs.bin_search import Alphabet, BinSearch
from mechdesign.designs.family_search import ERM, RQM
from mechdesign.designs.frontier import Frontier, frontier
from mechdesign.designs.metric_channel import MetricChannel
from mechdesign.designs.metric_quantizer import MetricQuantizer
from mechdesign.designs.metric_quantizer_result import MetricQuantizerResult
from mechdesign.designs.mvu import MVU
from mechdesign.designs.optimal_quantizer import OptimalQuantizer
from mechdesign.designs.optimal_quantizer_result import OptimalQuantizerResult
from mechdesign.designs.optm import OPTM
from mechdesign.emd import emd, emd_multisets
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, ResultFormatError, SolverError
from mechdesign.losses import Loss
from mechdesign.mechanisms.channel import Channel
from mechdesign.mechanisms.frequency import FrequencyEstimate, LaplaceHistogram
from mechdesign.mechanisms.hadamard import HadamardResponse
from mechdesign.mechanisms.itemwise import ItemwiseRelease
from mechdesign.mechanisms.knorm import KNormNoise
from mechdesign.mechanisms.linear_query import LinearQuery
from mechdesign.mechanisms.linear_release import LinearRelease
from mechdesign.mechanisms.planar_laplace import planar_laplace
from mechdesign.mechanisms.quantizer import Quantizer
from mechdesign.mechanisms.reduction import ReducedRelease, SamplingReduction, sampling_reduction
from mechdesign.mechanisms.responses import ClusteredResponse, KaryResponse
from mechdesign.metric import MetricSpace
from mechdesign.priors import Prior, clipped, truncated
from mechdesign.privacy import ApproximateDP, MetricDP, PureDP, ZeroConcentratedDP
from mechdesign.results import Result, load
from mechdesign.search.grid import Grid
from mechdesign.search.optm_search import OPTMSearch
from mechdesign.serialize import result_schema
from mechdesign.user_privacy import (
    DiscreteEMDPrivacy,
    EMDPrivacy,
    ItemPrivacy,
    alpha_from_semantics,
    group_privacy,
)

__version__ = "0.1.0"

__all__ = [
    "ERM",
    "MVU",
    "OPTM",
    "RQM",
    "Alphabet",
    "Amplification",
    "ApproximateDP",
    "BinSearch",
    "Certificate",
    "Channel",
    "ClusteredResponse",
    "DesignError",
    "DiscreteEMDPrivacy",
    "EMDPrivacy",
    "FrequencyEstimate",
    "Frontier",
    "Grid",
    "HadamardResponse",
    "InfeasibleError",
    "ItemPrivacy",
    "ItemwiseRelease",
    "KNormNoise",
    "KaryResponse",
    "LaplaceHistogram",
    "LinearQuery",
    "LinearRelease",
    "Loss",
    "MechdesignError",
    "MetricChannel",
    "MetricDP",
    "MetricQuantizer",
    "MetricQuantizerResult",
    "MetricSpace",
    "OPTMSearch",
    "OptimalQuantizer",
    "OptimalQuantizerResult",
    "Prior",
    "PureDP",
    "Quantizer",
    "ReducedRelease",
    "Result",
    "ResultFormatError",
    "SamplingReduction",
    "SolverError",
    "ZeroConcentratedDP",
    "alpha_from_semantics",
    "amplification",
    "calibrate_item_alpha",
    "clipped",
    "clone_divergence",
    "emd",
    "emd_multisets",
    "frontier",
    "group_privacy",
    "load",
    "planar_laplace",
    "result_schema",
    "sampling_reduction",
    "shuffled_alpha",
    "solvers",
    "truncated",
]
