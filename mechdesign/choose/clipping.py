r"""The mean of n clients' numbers, each clipped to a range and reported by a quantizer that is unbiased on it.

Numbers x follow a public prior, c(x) is the nearest number in [l, h], and a report Q has mean c(x). Given its number a client's noise
Q − c(x) has mean 0 and so is uncorrelated with c(x) − x; clients are independent. With :math:`b = E\,c(X) - E\,X` the mean squared difference between
the mean of the reports and that of the numbers is

.. math:: \frac{E[(Q - c(X))^2] + \mathrm{Var}(c(X) - X)}{n} + b^2 = \frac{E[(Q - c(X))^2] + E[(c(X) - X)^2]}{n} + \Bigl(1 - \frac1n\Bigr) b^2.

The estimand is the mean of *these* clients' numbers, which would be published without privacy, and not
the mean of a population from which they are drawn, whose sampling error comes on top.

The bias b is a difference, :math:`E(l - X)_+ - E(X - h)_+`. For a symmetric prior it is 0 at every symmetric range, and for others at
ranges that balance: if the prior were exactly right, its mean would be known, and nobody need be asked. So the prior is trusted for the sizes
of the tails, not for their balance: the larger of the two parts replaces \|b\|. That is the largest bias of any law whose clipped parts are no larger
than the prior's at either end; the resulting error is at least that under the prior, with equality if only one end clips.

A wider range has less bias and more noise. The search alternates between the best mechanism for a range, and the best range for that mechanism, its
outputs scaled with the range, on a grid that zooms in. Neither step raises the error; the search starts at the best range for
two outputs, found on a grid of all ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import stats

from mechdesign.checks import refuse
from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.results import Accuracy, Result
from mechdesign.plotting import COLOURS, draw_curves
from mechdesign.problem.priors import LawPrior, Prior
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Figure, FrozenLaw, Numbers

Range = tuple[float, float]
_TAIL = 1e-12  # probability beyond the widest range tried
_NARROWEST = 1e-6  # narrowest range tried, in standard deviations
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(21)


class MeanError(NamedTuple):
    """Errors of one client: mean square of the noise, mean square of the clipped part, and its mean at either end."""

    noise: Array
    square: Array
    under: Array
    over: Array

    @property
    def bias(self) -> Array:
        """Largest bias of any law whose clipped parts are no larger than the prior's at either end."""
        return np.maximum(self.under, self.over)

    def squared(self, clients: int) -> Array:
        """Return the mean squared error of the mean, with the largest bias."""
        return self.with_bias(self.bias, clients)

    def exact(self, clients: int) -> Array:
        """Return the mean squared error of the mean if the prior is exactly right."""
        return self.with_bias(self.under - self.over, clients)

    def with_bias(self, bias: Array, clients: int) -> Array:
        """Return the mean squared error of the mean with this bias."""
        return (self.noise + self.square) / clients + (1 - 1 / clients) * bias**2


@dataclass(frozen=True, eq=False)
class ClippedMean:
    """Errors of the mean of n clipped numbers under a prior; internally in units near the standard deviation, from the mean."""

    prior: Prior
    clients: int
    widest: Range | None = None

    @cached_property
    def units(self) -> tuple[float, float]:
        """Mean, and a power of two near the standard deviation."""
        ends = self.prior.support
        if np.isfinite(ends).all():
            centre = self.prior.mean
            about = self.prior.standardised(centre, 1.0)
            deviation = math.sqrt(about.moments(np.array(about.support))[0, 2])
        else:
            law = self.prior.law  # type: ignore[attr-defined]
            centre, deviation = float(law.mean()), float(law.std())
        remedy = "has no finite variance other than 0: clip it, md.clipped(law, lower, upper)"
        refuse(not 0 < deviation < math.inf, "prior", self.prior, remedy)
        return centre, 2.0 ** round(math.log2(deviation))

    @cached_property
    def _core(self) -> tuple[Prior, Array]:
        """The standardised prior, clipped where its tails have mass `_TAIL`, and the mean and mean square of the parts clipped at each end."""
        prior = self.prior.standardised(*self.units)
        low, high = prior.support
        if not isinstance(prior, LawPrior) or math.isfinite(high - low):
            return prior, np.zeros((2, 2))
        reach = max(-float(prior.law.ppf(_TAIL)), float(prior.law.isf(_TAIL)))
        ends = max(low, -reach), min(high, reach)
        return prior.clip(*ends), np.array(
            [_beyond(prior.law, end, side) * (abs(end) == reach) for end, side in zip(ends, (-1.0, 1.0))]
        )

    def errors(self, mechanism: Quantizer, low: Numbers, high: Numbers) -> MeanError:
        """Return the errors of a mechanism scaled to each range, a pair of ends; its outputs scale along."""
        (centre, unit), (core, beyond) = self.units, self._core
        low, high = ((np.atleast_1d(np.asarray(v, dtype=float)) - centre) / unit for v in (low, high))
        start, stop = mechanism.input_range
        t, squares = ((v - start) / (stop - start) for v in (mechanism.knots, mechanism.bins))
        first, last = mechanism.starts @ squares**2, mechanism.ends @ squares**2
        edges = low[:, None] + (high - low)[:, None] * t
        edges[:, -1] = high
        below, whole = self._below(core, edges)
        l, h = low[:, None], (high - low)[:, None]
        m0, m1, m2 = np.moveaxis(np.diff(below, axis=1), 2, 0)
        along, across = (m1 - l * m0) / h, (m2 - 2 * l * m1 + l * l * m0) / h**2
        gaps = np.diff(t)  # 0 for knots that coincide after rounding
        inner = (
            first * m0 + (last - first) / np.where(gaps > 0, gaps, np.inf) * (along - t[:-1] * m0) - across
        )
        under, over = below[:, 0], whole - below[:, -1]
        noise = inner.sum(axis=1) + first[0] * under[:, 0] + (last[-1] - 1) * over[:, 0]
        taken, square = np.zeros((2, len(low))), np.zeros(len(low))
        for k, (at, m, side) in enumerate(((low, under, -1.0), (high, over, 1.0))):
            inside = side * (core.support[k] - at)  # distance of the end from the end of the core's support
            taken[k] = side * (m[:, 1] - at * m[:, 0]) + beyond[k, 0]
            square += m[:, 2] - 2 * at * m[:, 1] + at**2 * m[:, 0] + 2 * inside * beyond[k, 0] + beyond[k, 1]
        taken, square = np.maximum(unit * taken, 0.0), np.maximum(unit**2 * square, 0.0)
        return MeanError(unit**2 * (high - low) ** 2 * noise, square, *taken)

    @staticmethod
    def _below(core: Prior, edges: Array) -> tuple[Array, Array]:
        """Return the moments of order 0 to 2 of the part below each edge, and of the whole."""
        ends = core.support
        cuts, at = np.unique(np.append(np.clip(edges, *ends), ends), return_inverse=True)
        sums = np.concatenate([np.zeros((1, 3)), np.cumsum(core.moments(cuts), axis=0)])
        return sums[at.ravel()[: edges.size]].reshape(*edges.shape, 3), sums[-1]

    def best_range(self, mechanism: Quantizer, near: Range | None = None) -> Range:
        """Return the range at which the scaled mechanism has the least error, among all or among those near a given one (up to 4 times as wide or narrow)."""
        (centre, unit), core = self.units, self._core[0]
        most = np.array([-core.support[0], core.support[1]])
        if self.widest:
            most = np.array([centre - self.widest[0], self.widest[1] - centre]) / unit
        if near is None:
            at, steps, factor = np.sqrt(most * _NARROWEST), 20, math.sqrt(most.max() / _NARROWEST)
        else:
            at, steps, factor = np.abs(np.array(near) - centre) / unit, 4, 4.0
        mirrored = core.symmetric() and most[0] == most[1]
        while factor > 1.001:
            grids = [
                np.minimum(a * factor ** (np.arange(-steps, steps + 1) / steps), m) for a, m in zip(at, most)
            ]
            pairs = np.stack([grids[1]] * 2 if mirrored else [g.ravel() for g in np.meshgrid(*grids)])
            found = self.errors(mechanism, centre - unit * pairs[0], centre + unit * pairs[1])
            at = pairs[:, int(np.argmin(found.squared(self.clients)))]
            factor, steps = factor ** (1 / steps), 4
        return float(centre - unit * at[0]), float(centre + unit * at[1])

    def of(self, mechanism: Quantizer) -> MeanError:
        """Return the errors of a mechanism on its own range."""
        return self.errors(mechanism, *mechanism.input_range)

    def accuracy(self, mechanism: Quantizer) -> Accuracy:
        """Return the errors of the mean; absolute error and half-width are those of a normal law, which the mean of many clients nearly has."""
        found = self.of(mechanism)
        bias, square = found.bias.item(), found.squared(self.clients).item()
        deviation = math.sqrt(square - bias**2)
        law = stats.foldnorm(bias / deviation, scale=deviation)
        return Accuracy(math.hypot(bias, deviation), float(law.mean()), float(law.ppf(0.95)))

    def words(self, mechanism: Quantizer) -> str:
        """Describe range, error and bias."""
        found, (low, high) = self.of(mechanism), mechanism.input_range
        root = math.sqrt(found.squared(self.clients).item())
        return (
            f"values are clipped to [{low:.5g}, {high:.5g}]; root mean squared error of the mean of {self.clients} "
            f"clients: at most {root:.4g} (bias at most {found.bias.item():.2g})"
        )

    def plot(self, mechanism: Quantizer, **options: float) -> Figure:
        """Draw the error and its parts over the width of the range, with outputs scaled along."""
        (centre, _), n, times = self.units, self.clients, np.geomspace(0.2, 5, 201)
        low, high = mechanism.input_range
        found = self.errors(mechanism, centre - (centre - low) * times, centre + (high - centre) * times)
        parts = {
            "mean of the reports": found.squared(n),
            "noise": found.noise / n,
            "what is clipped off": found.square / n,
            "largest bias": found.bias**2,
        }
        root = math.sqrt(self.of(mechanism).squared(n).item())
        curves = {name: ((high - low) * times, np.sqrt(part)) for name, part in parts.items()}
        labels = {"xlabel": "width of the clipping range", "ylabel": "root mean squared error"}
        fig = draw_curves(curves, options, xscale="log", ylim=(0, 3 * root), **labels)
        fig.axes[0].plot([high - low], [root], "o", color=COLOURS[0])
        return fig


def _beyond(law: FrozenLaw, end: float, side: float) -> Array:
    """Return the mean and mean square of a number's excess over an end, by Gauss–Legendre quadrature on panels that double, far enough for any tail."""
    edges = np.append(0.0, abs(end) * 2.0 ** np.arange(-8, 400))
    half = np.diff(edges)[:, None] / 2
    far = edges[:-1, None] + half * (1 + _NODES)
    with np.errstate(all="ignore"):
        mass = np.nan_to_num(law.pdf(end + side * far)) * half * _WEIGHTS
    return np.array([(far * mass).sum(), (far**2 * mass).sum()])


def at_best_range(
    mean: ClippedMean,
    start: Quantizer,
    solve: Callable[[int, Range], Result],
    bits: Iterable[int],
    given: Range | None = None,
) -> Result:
    """Return the result of least error over numbers of bits and, unless one is given, ranges; its notes list the error by bits.

    The search starts at the best range for the outputs of `start`; `solve` takes a number of bits and a range.
    """
    best, least, by_bits, deadline = None, math.inf, {}, Deadline()
    at = given or mean.best_range(start)
    for count in bits:
        before = math.inf
        while True:
            try:
                result = solve(count, at)
            except (InfeasibleError, SolverError) as reason:
                if best is None:
                    raise
                if isinstance(reason, SolverError):
                    deadline.failed(reason, "the best range so far is used")
                break
            error = mean.of(result.mechanism).squared(mean.clients).item()
            if error < least:
                best, least = result, error
            if given:
                break
            at = mean.best_range(result.mechanism, at)
            ahead = mean.errors(result.mechanism, *at).squared(mean.clients).item()
            if not ahead < (1 - _ENOUGH) * min(error, before):
                break
            before = error
        by_bits[count] = least
    assert best is not None
    notes = [mean.words(best.mechanism)]
    if len(by_bits) > 1:
        enough = next(count for count, error in by_bits.items() if error <= 1.01**2 * least)
        listed = ", ".join(f"{count}: {math.sqrt(error):.4g}" for count, error in by_bits.items())
        notes.append(f"by bits {listed}; within 1% from {enough} bit{'' if enough == 1 else 's'} on")
    return replace(best, notes=(*notes, *best.notes, *deadline.failures))


_ENOUGH = 1e-4
"""Least relative gain that another round must promise."""
