"""mechdesign designs differential-privacy mechanisms by optimization, and proves what it delivers."""

from mechdesign import solvers
from mechdesign.accounting.gaussian import gaussian_mu, gaussian_profile
from mechdesign.accounting.interval import DeltaInterval, delta_interval, epsilon_bound
from mechdesign.accounting.loss import centred_loss
from mechdesign.accounting.pld import LawPrivacyLoss, to_pld
from mechdesign.accounting.profile import privacy_profile, profile_epsilon
from mechdesign.accounting.shuffling import (
    Amplification,
    amplification,
    calibrate_item_alpha,
    clone_divergence,
    shuffled_alpha,
)
from mechdesign.accounting.sufficient import flipped_huber_sufficient, flipped_huber_zcdp, zcdp_delta
from mechdesign.accounting.terms import NoiseTerm
from mechdesign.audit.certificate import Certificate
from mechdesign.designs.biased import BiasedSelection
from mechdesign.designs.bin_search import Alphabet, BinSearch
from mechdesign.designs.calibrate import calibrate
from mechdesign.designs.correlated_gaussian import CorrelatedGaussian
from mechdesign.designs.disparity import disparity, gini, layer_profile, majorizes
from mechdesign.designs.family_search import ERM, RQM
from mechdesign.designs.frontier import Frontier, frontier
from mechdesign.designs.metric_channel import MetricChannel
from mechdesign.designs.metric_channel_result import ChannelResult
from mechdesign.designs.metric_quantizer import MetricQuantizer
from mechdesign.designs.metric_quantizer_result import MetricQuantizerResult
from mechdesign.designs.mvu import MVU
from mechdesign.designs.noise_allocation import NoiseAllocation
from mechdesign.designs.optimal_noise import OptimalNoise
from mechdesign.designs.optimal_quantizer import OptimalQuantizer
from mechdesign.designs.optimal_quantizer_result import OptimalQuantizerResult
from mechdesign.designs.optm import OPTM
from mechdesign.emd import emd, emd_multisets
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, ResultFormatError, SolverError
from mechdesign.losses import Loss
from mechdesign.mechanisms.biased import BiasedQuantizer
from mechdesign.mechanisms.cell_noise import CellNoise
from mechdesign.mechanisms.channel import Channel
from mechdesign.mechanisms.continuous_ldp import HybridMechanism, PiecewiseMechanism, duchi
from mechdesign.mechanisms.frequency import (
    FrequencyEstimate,
    FrequencyFit,
    LaplaceHistogram,
    simplex_projection,
)
from mechdesign.mechanisms.frequency_bounds import emd_error_bound, metric_response_error_bound
from mechdesign.mechanisms.hadamard import HadamardResponse
from mechdesign.mechanisms.itemwise import ItemwiseRelease
from mechdesign.mechanisms.knorm import KNormNoise
from mechdesign.mechanisms.linear_query import LinearQuery
from mechdesign.mechanisms.linear_release import LinearRelease
from mechdesign.mechanisms.noise.additive import AdditiveNoise
from mechdesign.mechanisms.noise.discrete import discrete_gaussian, discrete_laplace_law, opendp_sample
from mechdesign.mechanisms.noise.flipped_huber import flipped_huber, flipped_huber_law
from mechdesign.mechanisms.noise.osgt import osgt
from mechdesign.mechanisms.noise.staircase import L1Staircase, staircase, staircase_law
from mechdesign.mechanisms.noise.truncated_laplace import truncated_laplace, truncated_laplace_law
from mechdesign.mechanisms.planar_laplace import planar_laplace
from mechdesign.mechanisms.quantizer import Quantizer
from mechdesign.mechanisms.reduction import ReducedRelease, SamplingReduction, sampling_reduction
from mechdesign.mechanisms.responses import ClusteredResponse, KaryResponse
from mechdesign.mechanisms.vector import VectorQuantizer
from mechdesign.mechanisms.vector_noise import CorrelatedGaussianNoise, IndependentNoise
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
    "AdditiveNoise",
    "Alphabet",
    "Amplification",
    "ApproximateDP",
    "BiasedQuantizer",
    "BiasedSelection",
    "BinSearch",
    "CellNoise",
    "Certificate",
    "Channel",
    "ChannelResult",
    "ClusteredResponse",
    "CorrelatedGaussian",
    "CorrelatedGaussianNoise",
    "DeltaInterval",
    "DesignError",
    "DiscreteEMDPrivacy",
    "EMDPrivacy",
    "FrequencyEstimate",
    "FrequencyFit",
    "Frontier",
    "Grid",
    "HadamardResponse",
    "HybridMechanism",
    "IndependentNoise",
    "InfeasibleError",
    "ItemPrivacy",
    "ItemwiseRelease",
    "KNormNoise",
    "KaryResponse",
    "L1Staircase",
    "LaplaceHistogram",
    "LawPrivacyLoss",
    "LinearQuery",
    "LinearRelease",
    "Loss",
    "MechdesignError",
    "MetricChannel",
    "MetricDP",
    "MetricQuantizer",
    "MetricQuantizerResult",
    "MetricSpace",
    "NoiseAllocation",
    "NoiseTerm",
    "OPTMSearch",
    "OptimalNoise",
    "OptimalQuantizer",
    "OptimalQuantizerResult",
    "PiecewiseMechanism",
    "Prior",
    "PureDP",
    "Quantizer",
    "ReducedRelease",
    "Result",
    "ResultFormatError",
    "SamplingReduction",
    "SolverError",
    "VectorQuantizer",
    "ZeroConcentratedDP",
    "alpha_from_semantics",
    "amplification",
    "calibrate",
    "calibrate_item_alpha",
    "centred_loss",
    "clipped",
    "clone_divergence",
    "delta_interval",
    "discrete_gaussian",
    "discrete_laplace_law",
    "disparity",
    "duchi",
    "emd",
    "emd_error_bound",
    "emd_multisets",
    "epsilon_bound",
    "flipped_huber",
    "flipped_huber_law",
    "flipped_huber_sufficient",
    "flipped_huber_zcdp",
    "frontier",
    "gaussian_mu",
    "gaussian_profile",
    "gini",
    "group_privacy",
    "layer_profile",
    "load",
    "majorizes",
    "metric_response_error_bound",
    "opendp_sample",
    "osgt",
    "planar_laplace",
    "privacy_profile",
    "profile_epsilon",
    "result_schema",
    "sampling_reduction",
    "shuffled_alpha",
    "simplex_projection",
    "solvers",
    "staircase",
    "staircase_law",
    "to_pld",
    "truncated",
    "truncated_laplace",
    "truncated_laplace_law",
    "zcdp_delta",
]
