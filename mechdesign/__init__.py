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
from mechdesign.channels.channel import Channel
from mechdesign.channels.hadamard import HadamardResponse
from mechdesign.channels.optimal.design import MetricChannel
from mechdesign.channels.optimal.result import ChannelResult
from mechdesign.channels.planar_laplace import planar_laplace
from mechdesign.channels.responses import ClusteredResponse, KaryResponse
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, ResultFormatError, SolverError
from mechdesign.evidence.results import Result, load
from mechdesign.evidence.serialize import result_schema
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.allocation.design import NoiseAllocation
from mechdesign.noise.allocation.disparity import disparity, gini, layer_profile, majorizes
from mechdesign.noise.calibrate import calibrate
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.correlated_gaussian import CorrelatedGaussian
from mechdesign.noise.knorm import KNormNoise
from mechdesign.noise.laws.discrete import discrete_gaussian, discrete_laplace_law, opendp_sample
from mechdesign.noise.laws.flipped_huber import flipped_huber, flipped_huber_law
from mechdesign.noise.laws.osgt import osgt
from mechdesign.noise.laws.staircase import L1Staircase, staircase, staircase_law
from mechdesign.noise.laws.truncated_laplace import truncated_laplace, truncated_laplace_law
from mechdesign.noise.optimal.design import OptimalNoise
from mechdesign.noise.vector_noise import CorrelatedGaussianNoise, IndependentNoise
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior, clipped, truncated
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP, ZeroConcentratedDP
from mechdesign.quantizers.biased_design import BiasedSelection
from mechdesign.quantizers.common.certificate import Certificate
from mechdesign.quantizers.families import ERM, RQM
from mechdesign.quantizers.mechanism.biased import BiasedQuantizer
from mechdesign.quantizers.mechanism.continuous_ldp import HybridMechanism, PiecewiseMechanism, duchi
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.vector import VectorQuantizer
from mechdesign.quantizers.metric.design import MetricQuantizer
from mechdesign.quantizers.metric.result import MetricQuantizerResult
from mechdesign.quantizers.mvu import MVU
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.quantizers.optimal.frontier import Frontier, frontier
from mechdesign.quantizers.optimal.outputs import Alphabet, BinSearch
from mechdesign.quantizers.optimal.result import OptimalQuantizerResult
from mechdesign.quantizers.optm.design import OPTM
from mechdesign.quantizers.optm.grid_search import OPTMSearch
from mechdesign.runs.grid import Grid
from mechdesign.spaces.emd import emd, emd_multisets
from mechdesign.spaces.space import MetricSpace
from mechdesign.user_level.frequency import (
    FrequencyEstimate,
    FrequencyFit,
    LaplaceHistogram,
    simplex_projection,
)
from mechdesign.user_level.frequency_bounds import emd_error_bound, metric_response_error_bound
from mechdesign.user_level.itemwise import ItemwiseRelease
from mechdesign.user_level.linear_query import LinearQuery
from mechdesign.user_level.linear_release import LinearRelease
from mechdesign.user_level.privacy import (
    DiscreteEMDPrivacy,
    EMDPrivacy,
    ItemPrivacy,
    alpha_from_semantics,
    group_privacy,
)
from mechdesign.user_level.reduction import ReducedRelease, SamplingReduction, sampling_reduction

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
