"""The lower bound for several coordinates: of which mean of some of them, and at which privacy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mechdesign.errors import MechdesignError
from mechdesign.noise.optimal.certificate import NoiseCertificate
from mechdesign.noise.optimal.many.certificate import averaged
from mechdesign.noise.optimal.many.copies import LARGEST, Copies
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.solvers.deadline import Deadline

__all__ = ["lower_bound"]

_WHOLE_SECONDS = 2.0
_LEAST_SECONDS = 0.5  # it takes a tenth of that, seldom more
_SECONDS = 3.0  # a third of it, mostly
_TRIED = 2
_SHARES = np.geomspace(3e-3, 1.0, 40)  # ε₁/ε
_FEWER = (2, 4, 8, 16, 32, 64, 128)

Bound = tuple[NoiseCertificate, int | None]


def lower_bound(design: Any, one: Callable[..., Any], deadline: Deadline) -> Bound | None:
    """The largest proved optimum of one coordinate found, and of how many coordinates it is the mean: None is all.

    The mean of all is tried first, then those of fewer (`copies`) that promise most; None where none was found in time.
    """
    found: list[Bound] = []
    loss = Loss.of(design.loss)

    def prove(privacy: Any, mean: int | None, gap: float, seconds: float | None) -> None:
        try:
            held = one(privacy, averaged(loss, mean or design.moved), gap, seconds).certificate
        except MechdesignError:
            return
        found.append((held, mean))

    prove(design.privacy, None, 0.1, deadline.limit(most=_WHOLE_SECONDS, least=_LEAST_SECONDS))
    inner = Deadline(deadline.limit(most=_SECONDS))
    for promised, mean, copies, epsilon in _promising(design, loss, inner):
        if inner.passed or any(held.lower_bound >= promised for held, _ in found):
            break
        delta = copies.share(epsilon, inner)
        if delta is not None:
            prove(ApproximateDP(epsilon, delta), mean, 0.005, inner.limit())
    return max(found, key=lambda bound: bound[0].lower_bound, default=None)


def _promising(design: Any, loss: Loss, deadline: Deadline) -> Iterator[tuple[float, int, Copies, float]]:
    """What truncated Laplace noise costs at the privacy that is implied: the means where it costs most."""
    moved = design.moved
    means = {1, 2, *(moved // k for k in _FEWER)} if loss.polynomial and loss.squared else {1}
    epsilons = design.epsilon * _SHARES
    best = []
    for mean in sorted(m for m in means if 1 <= m <= moved // 2):
        if deadline.passed:
            break
        copies = Copies.of(moved, mean, design.epsilon, design.delta)
        deltas = copies.excess(epsilons)
        costs = _truncated(averaged(loss, mean), design.sensitivity, epsilons, deltas)
        i = int(costs.argmax())
        best.append((float(costs[i]), mean, copies, float(epsilons[i])))
    yield from sorted(best, key=lambda b: -b[0])[:_TRIED]


def _truncated(loss: Loss, size: float, epsilons: Any, deltas: Any) -> Any:
    """Expected losses of truncated Laplace noise, 0 where there is none."""
    with np.errstate(all="ignore"):
        reach = np.log1p(np.expm1(epsilons) / (2 * deltas)) / epsilons
        at = reach[:, None] * np.linspace(0, 1, 200)
        weights = np.exp(-epsilons[:, None] * at)
        costs = (weights * (loss(size * at) + loss(-size * at)) / 2).sum(axis=1) / weights.sum(axis=1)
    return np.where((deltas > 0) & (deltas < LARGEST) & np.isfinite(costs), costs, 0.0)
