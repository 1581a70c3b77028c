"""The independent computation that each class of design is held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mechdesign as md
from tests.campaign import bounds_oracles, noise_oracles, oracles, vector_oracles
from tests.campaign.later_draws import Bounded
from tests.campaign.oracles import Faults


def allocation(design: Any, result: Any) -> Faults:
    """Of one type in closed form; of a mix, or of several points at once, by composition from below."""
    plain = design.noise != "mixed" and not noise_oracles.points_of(design.privacy)
    yield from (oracles if plain else noise_oracles).allocation(design, result)


def calibration(design: Any, result: Any) -> Faults:
    several = isinstance(design.sensitivity, md.Sensitivity)
    yield from (bounds_oracles.bounded_calibration if several else oracles.calibration)(design, result)


def optimal_noise(design: Any, result: Any) -> Faults:
    """Of one real number and one point by known mechanisms; of others by composition and programs."""
    single = design.dimension == 1 and not design.integer and not noise_oracles.points_of(design.privacy)
    yield from (oracles if single else noise_oracles).optimal_noise(design, result)


ORACLES: dict[type, Callable[[Any, Any], Faults]] = {
    **dict.fromkeys(
        (md.OPTM, md.OPTMSearch, md.OptimalQuantizer, md.MetricQuantizer, md.RQM, md.ERM, md.MVU, md.BiasedSelection),
        oracles.quantizer,
    ),
    md.MetricChannel: oracles.channel,
    md.NoiseAllocation: allocation,
    md.noise.KNorm: noise_oracles.k_norm,
    md.CorrelatedGaussian: oracles.correlated,
    md.Calibration: calibration,
    md.OptimalNoise: optimal_noise,
    md.BoundedCount: noise_oracles.bounded_count,
    md.LocalWorkload: noise_oracles.local_workload,
    md.LinearRelease: oracles.linear_release,
    md.ItemwiseRelease: oracles.itemwise_release,
    md.user_level.SamplingReduction: oracles.sampling_reduction,
    md.UserHistogram: vector_oracles.user_histogram,
    Bounded: bounds_oracles.bounded,
    md.SphereQuantizer: vector_oracles.sphere,
    md.RandomDirections: vector_oracles.sphere,
    md.PrivUnit: vector_oracles.cap,
    md.SampledCoordinates: vector_oracles.sampled,
    md.VectorQuantizer: vector_oracles.vector,
    md.Plan: noise_oracles.plan,
}  # fmt: skip
