"""The independent computation that each of the later kinds of design is held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mechdesign as md
from tests.campaign import bounds_oracles, noise_oracles, vector_oracles
from tests.campaign.later_draws import Bounded, Rounds
from tests.campaign.oracles import Faults, correlated

LATER_ORACLES: dict[type, Callable[[Any, Any], Faults]] = {
    md.NoiseAllocation: noise_oracles.allocation,
    md.noise.KNorm: noise_oracles.k_norm,
    md.CorrelatedGaussian: correlated,
    md.OptimalNoise: noise_oracles.optimal_noise,
    md.BoundedCount: noise_oracles.bounded_count,
    md.LocalWorkload: noise_oracles.local_workload,
    md.Calibration: bounds_oracles.bounded_calibration,
    Bounded: bounds_oracles.bounded,
    Rounds: bounds_oracles.sampled_rounds,
    md.SphereQuantizer: vector_oracles.sphere,
    md.RandomDirections: vector_oracles.sphere,
    md.PrivUnit: vector_oracles.cap,
    md.SampledCoordinates: vector_oracles.sampled,
    md.VectorQuantizer: vector_oracles.vector,
    md.UserHistogram: vector_oracles.user_histogram,
    md.ItemwiseRelease: vector_oracles.itemwise,
    md.Plan: noise_oracles.plan,
}
