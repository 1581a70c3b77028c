r"""The search: named families first, then a free log-concave density, then staircases composed.

Three kinds of law are tried, each made private in its own way, and the cheapest is returned:

*named*: every family that `calibrate` knows, at its least scale;
*free*: log-concave masses on a lattice, by `newton` from the best of the named laws, brought below δ as certified
    by `loss` through φ → (1 + τ)φ;
*composed*: the proved optimum of one coordinate at (ε/K, δ/K), which K coordinates compose to (ε, δ) whatever the law.
    For few coordinates and large ε it is a staircase in all but its ends, and nothing log-concave comes near.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import MechdesignError
from mechdesign.evidence.rounding import round_down
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration.design import Calibration
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.laws.staircase import staircase_law
from mechdesign.noise.optimal.costs import average_costs, check_loss
from mechdesign.noise.optimal.many.certificate import calibrated
from mechdesign.noise.optimal.many.composed import Composed
from mechdesign.noise.optimal.many.loss import composed_upper, dominating_loss
from mechdesign.noise.optimal.many.mechanism import CellProduct
from mechdesign.noise.optimal.many.newton import Concave, Descent, refined
from mechdesign.noise.optimal.many.question import ManyQuestion, cost_of
from mechdesign.noise.optimal.repair import round_width
from mechdesign.solvers.deadline import Deadline, too_late
from mechdesign.typing import Array

__all__ = ["BITS", "NAMED", "Candidate", "as_table", "candidates", "composed_share", "started"]

NAMED = (
    "gaussian",
    "gennorm",
    "laplace",
    "flipped_huber",
    "osgt",
    "logistic",
    "staircase",
    "truncated_laplace",
)
"""The families tried, those that win most often first."""
_ROUGH = ("staircase", "truncated_laplace")  # no start for a smooth density
_CELLS = 420  # on each side, about
_MOST = 1000
_TIMES = 3  # how much finer the second lattice is
BITS = 160
_FREE = 0.6  # share of the time left that the free density may take
_SECONDS = 0.2  # for a family, and again for every factor of ten in K: compositions are not interrupted
_COMPOSED = 1.3  # how much dearer pure staircases may be for the composed optimum to be tried

Narrow = Callable[[Fraction, float, Deadline], Any]


@dataclass(frozen=True)
class Candidate:
    """A law that meets the requirement as far as the search knows.

    Parameters
    ----------
    name : str
    noise : AdditiveNoise or CellProduct
    value : float
        Expected loss of one coordinate.
    """

    name: str
    noise: AdditiveNoise | CellProduct
    value: float


def candidates(
    question: ManyQuestion,
    narrow: Narrow,
    deadline: Deadline,
    starts: Mapping[str, Any] | None = None,
) -> tuple[list[Candidate], bool]:
    """Return what was found, cheapest first, and whether the deadline cut a search short.

    Parameters
    ----------
    question : ManyQuestion
    narrow : callable
        (ε, δ, deadline) → the result of the one-dimensional design.
    deadline : Deadline
    starts : mapping of str to frozen law, optional
        Families calibrated already; none is then calibrated here.

    Raises
    ------
    SolverError
        Nothing was found in time.
    """
    found, short = (
        _named(question, deadline) if starts is None else (started(question, starts, deadline), False)
    )
    smooth = [c for c in found if c.name not in _ROUGH]
    half = deadline.part(_FREE)
    free = _free(question, min(smooth, key=_value), half, deadline) if smooth else None
    pure = staircase_law(
        question.privacy.epsilon / question.dimension, question.sensitivity, loss=question.judged
    )
    cut = half.passed
    least = min((c.value for c in found), default=math.inf)
    composed = None
    if (
        not deadline.passed
        and cost_of(AdditiveNoise(pure, question.sensitivity), question.loss) < _COMPOSED * least
    ):
        composed = composed_share(question, narrow, deadline)
    found += [c for c in (free, composed) if c is not None]
    if not found:
        raise too_late("many coordinates")
    return sorted(found, key=_value), short or cut or deadline.passed


def _value(candidate: Candidate) -> float:
    return candidate.value


def as_table(found: list[Candidate]) -> pd.DataFrame:
    """The candidates, cheapest first."""
    return pd.DataFrame([(c.name, c.value) for c in found], columns=["law", "value"])


def _named(q: ManyQuestion, deadline: Deadline) -> tuple[list[Candidate], bool]:
    """The families at their least scales, and whether there was no time for some."""
    found: list[Candidate] = []
    for name in NAMED:
        needed = _SECONDS * (1 + math.log10(q.dimension)) if found else 0.0
        if deadline.left <= needed:
            return found, True
        try:
            result = Calibration(name, q.privacy, q.sensitivity, q.dimension, loss=q.judged).solve(
                certify=False, time_limit=deadline.limit()
            )
        except MechdesignError:
            continue  # this family cannot meet the requirement, or not in time
        value = cost_of(result.mechanism, q.loss)
        if math.isfinite(value):
            found.append(Candidate(name, q.named(result.mechanism.law), value))
    return found, False


def started(q: ManyQuestion, starts: Mapping[str, Any], deadline: Deadline) -> list[Candidate]:
    """Laws that were calibrated elsewhere, cheapest first: from the first that is private, evaluated here once more."""
    laws = {name: q.named(law) for name, law in starts.items()}
    found = sorted(
        (Candidate(name, noise, cost_of(noise, q.loss)) for name, noise in laws.items()), key=_value
    )
    while found:
        noise = laws[found[0].name]
        try:
            calibrated(noise, q.privacy, deadline)
            break
        except MechdesignError:
            del found[0]
    return [c for c in found if math.isfinite(c.value)]


def _free(q: ManyQuestion, start: Candidate, deadline: Deadline, end: Deadline) -> Candidate | None:
    """The best log-concave law on a lattice, certified below δ by the `end`; None where the lattice would be too large."""
    law: Any = start.noise.law
    reach = float(law.isf(max(q.delta / q.dimension * 1e-4, 1e-290))) / q.sensitivity
    cells = q.cells or max(1, min(64, round(_CELLS / reach)))
    if (cells + 2) > _MOST or deadline.passed or reach * cells > _MOST:
        return None
    times = max(1, min(_TIMES, cells))
    coarse = -(-cells // times)
    lattice = _Lattice.of(q, coarse, reach, deadline)
    x = lattice.width * np.arange(lattice.side + 1)
    share = x / x[-1]
    begin = law.logpdf(x) - 1e-3 * share**2 - 1e-4 * share
    if not np.isfinite(begin).all():  # a law that ends, or whose density underflows, before the lattice does
        return None
    phi = lattice.descent.restored(begin)
    phi = None if phi is None else lattice.descent.run(phi, Concave.around(phi))
    if phi is None:
        return None
    found = None
    if times > 1 and not deadline.passed:
        fine = _Lattice.of(q, coarse * times, reach, deadline)
        inside = fine.descent.restored(refined(phi, times, fine.side + 1))
        inside = None if inside is None else fine.descent.run(inside, Concave.around(inside, start=1e-7))
        found = None if inside is None else _repaired(q, fine.descent, inside, fine.width, end)
    # a δ lost in the rounding of the finer transforms may be seen on the coarse lattice
    return found or _repaired(q, lattice.descent, phi, lattice.width, end)


@dataclass(frozen=True)
class _Lattice:
    """One lattice and the descent on it."""

    side: int
    width: float
    descent: Descent

    @classmethod
    def of(cls, q: ManyQuestion, cells: int, reach: float, deadline: Deadline) -> _Lattice:
        side = max(math.ceil(reach * cells), cells + 2)
        width = round_width(Fraction(q.sensitivity) / cells)
        if q.loss.function is not None:
            check_loss(q.loss, width * np.arange(-side - 1, side + 2))
        costs = average_costs(q.loss, 2 * np.arange(side + 1), Fraction(width) / 2).floats()
        problem = Composed(q.dimension, q.privacy.epsilon, side)
        level = math.log(q.delta)
        return cls(side, width, Descent(problem, cells, costs / float(np.median(costs)), level, deadline))


def _repaired(q: ManyQuestion, descent: Descent, phi: Array, width: float, end: Deadline) -> Candidate | None:
    """Aim at a log δ a little lower each time, until the certified δ is kept."""
    delta, level = q.delta, math.log(q.delta)
    for _ in range(12):
        if end.passed:
            break
        law = lattice_law(phi[descent.problem.fold], width, descent.shift)
        spent = composed_upper(dominating_loss(law), q.dimension, q.privacy.epsilon)
        if spent <= delta:
            noise = q.product(law)
            return Candidate("free", noise, cost_of(noise, q.loss))
        level -= math.log(spent / delta) + 1e-8
        lower = descent.restored(phi, level)
        if lower is None:
            return None
        phi = lower
    return None


def lattice_law(log_masses: Array, width: float, cells: int) -> CellNoise:
    """Masses as integers: so many bits that log-concavity survives far out in the tails."""
    masses = np.exp(log_masses - log_masses.max())
    weights = tuple(int(Fraction(m) * 2**BITS) for m in masses.tolist())
    return CellNoise(weights, width, -len(weights) * width / 2, cells)


def composed_share(q: ManyQuestion, narrow: Narrow, deadline: Deadline) -> Candidate | None:
    """The optimum of one coordinate at its share of the budget; certified by composition, since shares add up."""
    epsilon, delta, k = q.privacy.epsilon, q.delta, q.dimension
    try:
        law = narrow(Fraction(epsilon) / k, round_down(Fraction(delta) / k), deadline).law
    except MechdesignError:
        return None
    if not isinstance(law, CellNoise) or not law.symmetric:
        return None
    if k * law.exact_delta(Fraction(epsilon) / k) > Fraction(delta):
        return None
    noise = q.product(law)
    return Candidate("composed", noise, cost_of(noise, q.loss))
