"""Whether a result handed in answers the question asked: its design must protect all that the question says may change."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

import numpy as np

from mechdesign.channels.optimal.design import MetricChannel
from mechdesign.choose.questions import LocalReport, MetricReport, NumericQuery, Question
from mechdesign.errors import DesignError
from mechdesign.evidence.audit import same
from mechdesign.evidence.results import Result
from mechdesign.noise.allocation.design import NoiseAllocation
from mechdesign.noise.calibration.design import Calibration
from mechdesign.noise.correlated.counts import CountsGaussian
from mechdesign.noise.correlated.design import CorrelatedGaussian
from mechdesign.noise.knorm import KNorm
from mechdesign.noise.optimal.design import OptimalNoise
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import MetricDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.quantizers.mechanism.quantizer import Quantizer

__all__ = ["check_answer", "check_loss", "check_same_privacy"]


def check_same_privacy(name: str, result: Result, privacy: Any) -> None:
    """Raise DesignError unless the result was made for this privacy."""
    held = getattr(result.design, "privacy", None)
    if held is None and isinstance(result.design, MetricChannel):
        held = MetricDP(result.design.alpha)
    if held != privacy:
        raise DesignError.of(name, held, f"is not the privacy of the question, {privacy}")


def check_answer(name: str, result: Result, question: Question) -> None:
    """Raise DesignError unless a result answers the question, or one that asks for more."""
    if isinstance(question, NumericQuery):
        _check_noise(name, result.design, question)
    elif isinstance(question, LocalReport):
        _check_report(name, result, question)
    elif not isinstance(result.design, MetricChannel):
        raise DesignError.of(name, type(result).__name__, "must be a channel, for points of a metric space")
    else:
        design = result.design
        if not (same(design.space, question.space) and same(design.weights, _asked(question).weights)):
            raise DesignError.of(name, str(design.space), "must be for the question's space and prior")


def check_loss(name: str, result: Result, question: Question) -> None:
    """Raise DesignError unless the value of a result is in the loss that the question ranks by."""
    design = result.design
    if isinstance(question, LocalReport):
        return  # the error is computed anew
    if isinstance(question, MetricReport):
        fits = same(design.losses, _asked(question).losses)
    elif isinstance(design, NoiseAllocation):
        order = 2 if question.loss == "squared" else 1
        fits = design.loss == order and (design.weights is None or bool((design.weights == 1).all()))
    elif isinstance(design, CorrelatedGaussian | CountsGaussian):
        plain = design.weights is None or np.array_equal(design.weights, np.eye(len(design.weights)))
        fits = question.loss == "squared" and plain
    else:
        fits = Loss.of(design.loss) == Loss.of(question.loss)
    if not fits:
        held = getattr(design, "loss", "squared")
        raise DesignError.of(
            f"{name}: loss", held, f"is ranked by the question's: solve it for {question.loss}"
        )


def _asked(question: MetricReport) -> MetricChannel:
    """The question's prior and loss as arrays; they are the same at any α."""
    return MetricChannel(question.space, 1.0, question.prior, question.loss)


def _check_report(name: str, result: Result, question: LocalReport) -> None:
    mechanism = result.mechanism
    if not isinstance(mechanism, Quantizer):
        raise DesignError.of(name, type(result).__name__, "must be an unbiased quantizer, for reports")
    low, high = mechanism.input_range
    if low > question.input_range[0] or high < question.input_range[1]:
        raise DesignError.of(f"{name}: input_range", (low, high), f"must cover {question.input_range}")
    if len(mechanism.bins) > question.outputs:
        raise DesignError.of(
            f"{name}: bins", len(mechanism.bins), f"must be at most the question's {question.outputs}"
        )


def _check_noise(name: str, design: Any, q: NumericQuery) -> None:
    """More rounds, more people sampled and larger changes than asked for may be protected; never fewer."""
    if isinstance(design, Calibration):
        size, rounds, rate = design.dimension, design.rounds, design.sampling_rate
    elif isinstance(design, OptimalNoise):
        size, rounds, rate = design.dimension, 1, 1.0
    elif isinstance(design, KNorm):
        size, rounds, rate = design.dimension, design.rounds, 1.0
    elif isinstance(design, NoiseAllocation):
        size, rounds, rate = len(design.sensitivities), 1, 1.0
    elif isinstance(design, CorrelatedGaussian | CountsGaussian):
        size, rounds, rate = design.vectors.shape[1], 1, 1.0
    else:
        raise DesignError.of(name, type(design).__name__, "must be noise, for numbers")
    if size != q.dimension:
        raise DesignError.of(f"{name}: dimension", size, f"must be the question's {q.dimension}")
    if rounds < q.rounds:
        raise DesignError.of(f"{name}: rounds", rounds, f"must be at least the question's {q.rounds}")
    if rate < q.sampling_rate or (rate < 1 and q.bounds.neighbours != "add-remove"):
        raise DesignError.of(
            f"{name}: sampling_rate",
            rate,
            f"must be at least the question's {q.sampling_rate}, and 1 where a person is replaced",
        )
    if isinstance(design, Calibration) and design.family.discrete and not q.whole:
        raise DesignError.of(
            f"{name}: noise", design.family.name, "is for whole numbers: NumericQuery(whole=True)"
        )
    if not _protects(design, q):
        raise DesignError.of(
            f"{name}: sensitivity",
            str(getattr(design, "sensitivity", type(design).__name__)),
            f"does not cover the question's: {q.bounds}",
        )


def _protects(design: Any, q: NumericQuery) -> bool:
    """Whether every change that the question allows is one that the noise was made for."""
    asked, size = q.bounds, q.dimension
    if isinstance(design, CorrelatedGaussian):
        return _among(design.vectors, asked)
    if isinstance(design, NoiseAllocation):
        return _covers(design.bounds or Sensitivity(each=design.sensitivities), asked, size)
    if isinstance(design, CountsGaussian):
        # without signs counts rise together or fall together
        alike = design.signed or not asked.signed or asked.count(size) == 1
        return alike and _covers(Sensitivity(linf=design.most, changed=design.changed), asked, size)
    if isinstance(design, OptimalNoise):
        return _covers(Sensitivity(linf=design.sensitivity, changed=design.changed), asked, size)
    return _covers(Sensitivity.of(design.sensitivity), asked, size)


def _covers(held: Sensitivity, asked: Sensitivity, size: int) -> bool:
    """Whether each bound of one set holds on all of the other."""
    pairs = (
        (held.linf, asked.largest_linf),
        (held.l1, asked.largest_l1),
        (held.l2, asked.largest_l2),
        (held.changed, asked.count),
    )
    if any(bound is not None and most(size) > bound for bound, most in pairs):
        return False
    return held.each is None or bool((_each(asked, size) <= np.array(held.each)).all())


def _each(asked: Sensitivity, size: int) -> Any:
    """The most that each coordinate changes."""
    most = min((b for b in (asked.linf, asked.l1, asked.l2) if b is not None), default=math.inf)
    return np.full(size, most) if asked.each is None else np.minimum(asked.each, most)


def _among(vectors: Any, asked: Sensitivity) -> bool:
    """Whether the corners of a box, of which so many coordinates change, are all among the vectors, up to sign."""
    each = _each(asked, vectors.shape[1])
    moved = np.flatnonzero(each)
    count = min(asked.changed or len(moved), len(moved))
    if asked.l1 is not None and bool((each[moved] == asked.l1).all()):
        count = 1  # the corners of the ℓ₁ ball
    if math.comb(len(moved), count) * 2 ** (count - 1) > len(vectors):
        return False
    known = {tuple(row) for v in vectors.tolist() for row in (v, [-x for x in v])}
    for places in combinations(moved.tolist(), count):
        for signs in product((1.0, -1.0), repeat=count):
            corner = np.zeros(len(each))
            corner[list(places)] = each[list(places)] * signs
            if tuple(corner.tolist()) not in known:
                return False
    return True
