r"""The histogram of all users' items, unbiased, of least expected earth mover's distance to the true one.

n users hold m items each. A user's data are protected in the earth mover's distance: :math:`\alpha\,\mathrm{EMD}(D, D')`, or
that and δ. The error is :math:`E\,\mathrm{EMD}(\hat f, f)`, extended to estimates with negative entries.

**Counts below the edges of a tree** (`TreeHistogram`) [new]. On a tree whose vertices are the points, an item that moves from x to y
changes by one the number of items below each edge of its path. Independent noise on these counts with weights
:math:`e^{-\tau_e|z|}` on the integers has privacy loss at most :math:`\sum_e \tau_e` over the path; if that is at most
:math:`\alpha d(x, y)/m` for all paths, the best pairing of a user's items before and after gives a loss of at most α EMD. Flows of :math:`z_e` items
along edges of length :math:`w_e` turn the estimate into the truth:

.. math:: E\,\mathrm{EMD} \le \frac1{nm}\sum_e \frac{w_e}{\sinh\tau_e}, \qquad E|z_e| = \frac1{\sinh\tau_e},

with equality if path lengths equal the distances. Otherwise :math:`\tau_e = \alpha w_e/(m s_e)`, with :math:`s_e` the largest ratio
of path length to distance over the pairs whose paths contain e.

**No unbiased mechanism of pure privacy does better** [new] on a tree's distances than :math:`\sum_e w_e/(nm \sinh(\alpha w_e/m))`: at data with
an item at one end of e, move it to the other, t = α w_e/m. The likelihood ratio L of the two data sets is in :math:`[e^{-t}, e^t]`, the error :math:`X_e` of
the share below e has mean 0, and its mean under the second law is 1/nm more or less:

.. math:: \frac1{nm} = |E\,X_e (L - \cosh t)| \le \sinh t\;E|X_e| , \qquad \mathrm{EMD} = \sum_e w_e |X_e| .

With fewer items than edges, the bound sums as many of the largest terms as there are items.

*In any space* [new]: with an item at r, moves of it to all other points :math:`x_i` with ratios :math:`L_i`, and :math:`g(x_i) = nm(L_i - 1)`, g(r) = 0,

.. math:: N - 1 = E\sum_x X_x\,g(x) \le \mathrm{Lip}(g)\,E\,\mathrm{EMD}, \qquad
    \mathrm{Lip}(g) \le nm\,e^{\alpha\rho/m}(e^{\alpha D/m} - 1)/D ,

for :math:`|L_i - L_j| \le L_j(e^{\alpha d_{ij}/m} - 1)`, with D the diameter and ρ the largest distance from r. Both hold for estimates whose sum is 1. With δ > 0 an unbiased
mechanism may reveal the truth with probability δ: no bound is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from mechdesign import checks
from mechdesign.checks import Checked, field, refuse
from mechdesign.errors import DataError, DesignError, MechdesignError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import exp_lower, exp_upper, round_down, round_up
from mechdesign.evidence.page import Saved
from mechdesign.evidence.proofs import Certificate, Claim
from mechdesign.evidence.results import Accuracy, Result, audit_row
from mechdesign.evidence.sampling import geometric
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import COLOURS, draw_bars
from mechdesign.problem.privacy import Consumption, Description, points_of
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices, Numbers, Randomness
from mechdesign.user_level import frequency
from mechdesign.user_level.frequency import FrequencyEstimate, FrequencyFit
from mechdesign.user_level.itemwise import ItemwiseRelease, checked_items
from mechdesign.user_level.linear_release import EMDPrivacy, LinearQuery, LinearRelease

_UNIT = 1 << 50
_LEAST, _LARGEST = 2.0**-40, 500.0
"""Range of an edge's loss: below it multiples of `_UNIT` are too coarse; above it the noise is 0 up to a probability of e⁻⁵⁰⁰."""
_ROOM = 1e-12  # relative slack of a loss, for the rounding of distances and of paths of up to `_POINTS` edges
_NEARLY = 1 + Fraction(2, 10**15)
"""Upper bound on the ratio of a distance to its rounded double, and on its inverse."""
_POINTS = 500


def sinh_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return rationals below and above sinh x."""
    low, high = exp_lower(x), exp_upper(x)
    return (low - 1 / low) / 2, (high - 1 / high) / 2


@serializable("tree-histogram", eq=False)
class TreeHistogram(Checked, Saved):
    """The histogram of n users' m items each, by noise on the numbers of items below the edges of a tree.

    Parameters
    ----------
    space : MetricSpace
    items, users : int
        m and n, public.
    parents : tuple of int
        Parent of each point; −1 at the root.
    losses : tuple of int
        Privacy loss of one item more or less below each point's edge, in units of 2⁻⁵⁰; 0 at the root.

    Examples
    --------
    >>> line = MetricSpace.line([0.0, 1.0, 3.0])
    >>> law = UserHistogram(line, EMDPrivacy(2.0), items=2, users=100).solve().mechanism
    >>> law.parents, [round(loss / 2**50, 6) for loss in law.losses]
    ((-1, 0, 1), [0.0, 1.0, 2.0])
    >>> float(law.release(np.zeros((100, 2), dtype=int)).estimate.sum().round(9))
    1.0
    """

    space: MetricSpace = field(MetricSpace)
    items: int = field(check=checks.integer, least=1)
    users: int = field(check=checks.integer, least=1)
    parents: tuple[int, ...] = field(check=checks.integer, least=-1, many=True, default=())
    losses: tuple[int, ...] = field(check=checks.integer, least=-1, many=True, default=())

    def _post_check(self) -> None:
        for name in ("parents", "losses"):
            if (size := len(getattr(self, name))) != self.space.size:
                raise DesignError.of(name, size, f"must be one for each of {self.space.size} points")
        kept = all(
            0 < loss <= _LARGEST * _UNIT if parent >= 0 else loss == 0
            for loss, parent in zip(self.losses, self.parents)
        )
        allowed = "must be positive, 0 at the root, of at most 2^50 items"
        refuse(not kept or self.total > 1 << 50, "losses", self.losses, allowed)
        _ = self.order

    @property
    def total(self) -> int:
        """Number of items."""
        return self.items * self.users

    @cached_property
    def order(self) -> list[int]:
        """The points, each after its parent."""
        children: dict[int, list[int]] = {}
        for point, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(point)
        found = list(children.get(-1, []))
        refuse(len(found) != 1, "parents", self.parents, "must have one root, whose parent is -1")
        for point in found:  # `found` grows in the loop
            found += children.get(point, [])
        refuse(len(found) < len(self.parents), "parents", self.parents, "must be a tree of the points")
        return found

    @cached_property
    def lengths(self) -> Array:
        """Distance of each point to its parent; 0 at the root."""
        return np.array([self.space.distances[x, p] if p >= 0 else 0.0 for x, p in enumerate(self.parents)])

    @cached_property
    def below(self) -> Array:
        """Whether point x (row) is below the edge of point e (column)."""
        found = np.eye(self.space.size)
        for point in self.order[1:]:
            found[point] += found[self.parents[point]]
        return found

    @cached_property
    def alpha(self) -> Fraction:
        """The largest loss of a path over its distance, times m: exact for the distances as doubles."""
        size, found = self.space.size, Fraction(0)
        paths = np.zeros((size, size), dtype=object)
        for k, point in enumerate(self.order):
            known = self.order[:k]
            if known:
                paths[point, known] = paths[self.parents[point], known] + self.losses[point]
                paths[known, point] = paths[point, known]
        for x in range(size):
            ratios = (paths[x, :x] / _UNIT).astype(float) / self.space.distances[x, :x]
            for y in np.flatnonzero(ratios >= ratios.max(initial=0) * (1 - 1e-9)).tolist():
                found = max(found, Fraction(int(paths[x, y])) / Fraction(float(self.space.distances[x, y])))
        return found * self.items / _UNIT

    @cached_property
    def error_bound(self) -> float:
        """Upper bound on the expected earth mover's distance, attained if path lengths equal the distances; rounded up."""
        terms = (
            Fraction(length) * _NEARLY / sinh_bounds(Fraction(loss, _UNIT))[0]
            for length, loss in zip(self.lengths.tolist(), self.losses)
            if length
        )
        return round_up(sum((Fraction(round_up(term)) for term in terms), Fraction(0)) / self.total)

    @property
    def moments(self) -> tuple[Array, Array]:
        """Mean absolute value and variance of the noise of every edge, in items; 0 at the root."""
        taus = np.array([loss / _UNIT if p >= 0 else math.inf for loss, p in zip(self.losses, self.parents)])
        with np.errstate(over="ignore"):
            return 1 / np.sinh(taus), 1 / (2 * np.sinh(taus / 2) ** 2)

    def sample(
        self, datasets: Numbers, *, sizes: Numbers | None = None, rng: Randomness = None
    ) -> FrequencyFit:
        """Draw like `release` with a seeded generator: for simulation."""
        chances, source = -np.expm1(-np.maximum(self.losses, 1 << 20) / _UNIT), checks.generator(rng)
        return self._estimate(datasets, sizes, source.geometric(chances) - source.geometric(chances))

    def release(self, datasets: Numbers, *, sizes: Numbers | None = None) -> FrequencyFit:
        """Release the histogram, in exact integers, from the operating system's randomness.

        Parameters
        ----------
        datasets : array_like of int, shape (users, items)
            Point indices; or with `sizes` counts of all items together, shape (n,).
        sizes : int or array_like, shape (users,), optional
            Number of items of each user: public, and equal to `items`. A user with more would have more influence.

        Raises
        ------
        DataError
            An item that is no point, counts that are not those of the sizes. The guarantee does not cover that refusal.
        """
        # G of ratio exp(−2⁻⁵⁰) makes ⌊G/ℓ⌋ geometric of ratio exp(−ℓ 2⁻⁵⁰). The root has no edge: `_estimate` discards its draw.
        noise = [geometric(_UNIT, self.space.size) // np.maximum(self.losses, 1) for _ in range(2)]
        return self._estimate(datasets, sizes, noise[0] - noise[1])

    def _estimate(self, datasets: Numbers, sizes: Numbers | None, noise: Indices) -> FrequencyFit:
        counts = self._counts(datasets, sizes)
        children = np.eye(self.space.size, dtype=np.int64)
        edges = [point for point in self.order if self.parents[point] >= 0]
        children[[self.parents[point] for point in edges], edges] = -1
        flows = self.below.T.astype(np.int64) @ counts + noise
        flows[self.order[0]] = self.total
        estimate = children @ flows / self.total
        spread = np.sqrt(np.abs(children) @ self.moments[1]) / self.total
        return FrequencyFit(estimate, estimate, self.error_bound, self.space, self.users, spread)

    def _counts(self, datasets: Numbers, sizes: Numbers | None) -> Indices:
        size = self.space.size
        if sizes is None:
            held = checked_items(self.space, datasets, (self.users, self.items), "central")
            return np.bincount(held.ravel(), minlength=size)
        found, given = checks.answers("datasets", datasets), checks.finite("sizes", sizes)
        DataError.when(found.shape != (size,), f"datasets: must be counts of all users, shape {(size,)}")
        if given.shape not in ((), (self.users,)) or (given != self.items).any():
            raise DataError(f"sizes: must be {self.items} for each of {self.users} users")
        if ((found < 0) | (found != np.floor(found))).any() or found.sum() != self.total:
            raise DataError("datasets: must be whole counts of all items together, those of the sizes")
        return found.astype(np.int64)


def private_tree(space: MetricSpace, alpha: float, items: int, users: int) -> TreeHistogram:
    """Return a line's path; elsewhere the tree of least error among the minimum spanning tree and stars about two central points."""
    distances, points = space.distances, np.arange(space.size)
    tried = []
    if space.kind == "line" and space.points is not None:
        order = np.argsort(space.points[:, 0])
        tried.append(np.append(-1, order[:-1])[np.argsort(order)])
    else:
        centres = {int(distances.sum(axis=1).argmin()), int(distances.max(axis=1).argmin())}
        tried += [np.where(points == c, -1, c) for c in sorted(centres)]
        _, parents = breadth_first_order(minimum_spanning_tree(distances), min(centres), directed=False)
        tried.append(np.maximum(parents, -1))
    laws = []
    for parents in tried:
        ones = tuple((parents >= 0).astype(int).tolist())
        start = TreeHistogram(space, items, users, tuple(parents.tolist()), ones)
        laws.append(replace(start, losses=_losses(start, alpha)))
    return min(laws, key=lambda law: float(law.lengths @ law.moments[0]))


def _losses(tree: TreeHistogram, alpha: float) -> tuple[int, ...]:
    """Return α w/(m s) for every edge, rounded down."""
    below, lengths, distances = tree.below, tree.lengths, tree.space.distances
    stretch = np.ones(len(lengths))
    if tree.space.kind != "line":
        far = below @ lengths
        paths = far[:, None] + far - 2 * (below * lengths) @ below.T
        ratio = paths / np.where(distances > 0, distances, np.inf)
        for edge in range(len(lengths)):
            inside = below[:, edge] > 0
            if not inside.all():
                stretch[edge] = max(1.0, float(ratio[np.ix_(inside, ~inside)].max()))
    taus = np.minimum(alpha / tree.items * lengths / stretch * (1 - _ROOM), _LARGEST)
    allowed = f"times the shortest edge, {lengths[lengths > 0].min():g}, over {tree.items} items must be at least 2^-40: merge near points"
    checks.refuse(taus[lengths > 0].min() < _LEAST, "alpha", alpha, allowed)
    return tuple(int(tau * _UNIT) if length else 0 for tau, length in zip(taus.tolist(), lengths.tolist()))


NAMES = {
    "tree": "counts on a tree",
    "linear": "linear release",
    "gaussian": "linear release, Gaussian",
    "itemwise": "item by item",
}


def released(law: TreeHistogram | LinearRelease | ItemwiseRelease) -> str:
    """Return the name of the mechanism among `NAMES`."""
    if isinstance(law, LinearRelease):
        return "gaussian" if law.gaussian else "linear"
    return "tree" if isinstance(law, TreeHistogram) else "itemwise"


@serializable("user-histogram", eq=False)
class UserHistogram(Design):
    """Unbiased histogram of all users' items with the least expected earth mover's distance to the true one.

    Parameters
    ----------
    space : MetricSpace
        Space of at most 500 points.
    privacy : EMDPrivacy
        Requirement, read in the central model whatever its `model`: one user's data are replaced by others of equal size (bounded).
    items, users : int
        m items for each of n users, public.
    by : {None, "tree", "linear", "gaussian", "itemwise"}
        Noise on counts below the edges of a tree; the published releases, `LinearRelease` of the histogram by Laplace (Imola et al., Theorem 4.1 and Lemma 4.2) or Gaussian noise
        and `ItemwiseRelease` with `FrequencyEstimate`; by default the best of these. On a line, with at least as many items in all as gaps,
        the tree is the best of all unbiased mechanisms of pure privacy.

    Examples
    --------
    >>> found = UserHistogram(MetricSpace.line(range(6)), EMDPrivacy(1.0), items=20, users=100).solve()
    >>> found.status, round(found.value, 6)
    (<Status.OPTIMAL: 'optimal'>, 0.049979)
    >>> found.design.fit(np.zeros((100, 20), dtype=int), found).estimate.shape
    (6,)
    """

    asks: ClassVar[str] = "users"
    central: ClassVar[bool] = True
    neighbours: ClassVar[str] = "replace"
    answer_size: ClassVar[None] = None

    space: MetricSpace = field(MetricSpace)
    privacy: EMDPrivacy = field(EMDPrivacy)
    items: int = field(check=checks.integer, least=1)
    users: int = field(check=checks.integer, least=1)
    by: str | None = field(check=checks.one_of, allowed=(None, *NAMES), default=None)
    mechanism_class = proofs.every("unbiased histogram of users with so many items each")

    def _post_check(self) -> None:
        if self.privacy.sizes != "bounded":
            said = "protects how many items a user holds, which is public here (bounded): LinearRelease protects it"
            raise DesignError.of("sizes", self.privacy.sizes, said)
        checks.settle(self, privacy=replace(self.privacy, model="central"))
        allowed = f"must have 2 to {_POINTS} points: merge near ones"
        refuse(self.space.size < 2 or self.space.size > _POINTS, "space", self.space.size, allowed)
        refuse(self.total > 1 << 50, "items", self.items, f"of all {self.users} users must be at most 2^50")
        near, far = (self.privacy.alpha * d for d in (self._shortest, self.space.diameter))
        if near < _LEAST * self.items or far > 1e15 or self._shortest < 1e-100:
            said = f"must be at least 2^-40 times the items over the shortest distance, {self._shortest:g}, and at most 1e15 over the diameter"
            raise DesignError.of("alpha", self.privacy.alpha, said)

    @property
    def total(self) -> int:
        return self.items * self.users

    def asked_by(self, question: object) -> bool:
        return getattr(question, "asks", "") == self.asks

    @cached_property
    def floor(self) -> float | None:
        """Lower bound on the error of every unbiased mechanism; None for δ > 0."""
        if self.privacy.delta > 0:
            return None
        rate, distances = Fraction(self.privacy.alpha) / self.items, self.space.distances
        far, near = Fraction(float(distances.max())), Fraction(float(distances.max(axis=1).min()))
        anywhere, edges = 0.0, [0.0]
        if rate * far < _LARGEST:
            growth = exp_upper(rate * near * _NEARLY) * (exp_upper(rate * far * _NEARLY) - 1)
            anywhere = round_down((self.space.size - 1) * far / growth / _NEARLY)
        if self.space.kind == "line" and self.space.points is not None:
            places = [Fraction(x) for x in sorted(self.space.points[:, 0].tolist())]
            gaps = [q - p for p, q in pairwise(places) if rate * (q - p) < _LARGEST]
            edges = [round_down(gap / sinh_bounds(rate * gap)[1]) for gap in gaps]
        found = sum(map(Fraction, sorted(edges)[-self.total :]))
        return round_down(max(Fraction(anywhere), found) / self.total)

    def privacy_checked(self, law: Any, given: None) -> str:
        """Return PROVED, or RECOMPUTED for Gaussian noise and shuffling, whose accounting is in doubles."""
        normal = isinstance(law, LinearRelease) and law.gaussian
        return proofs.RECOMPUTED if normal or isinstance(law, ItemwiseRelease) else proofs.PROVED

    def law_claims(self, stated: Certificate, given: None) -> Iterator[Claim]:
        """Check the theorems of `mechdesign.user_level.histogram`: losses of all paths in exact arithmetic, and E|z| = 1/sinh τ.

        The guarantees of `LinearRelease` and `ItemwiseRelease` are recomputed from their Lipschitz constants, channels and accounting.
        """
        law = stated.law
        checks.instance("law", law, TreeHistogram, LinearRelease, ItemwiseRelease)
        space = law.space
        fits = (space.unit, space.kind) == (self.space.unit, self.space.kind) and law.users == self.users
        fits = fits and np.array_equal(space.distances, self.space.distances)
        fits = fits and getattr(law, "items", self.items) == self.items
        if isinstance(law, LinearRelease):
            fits = fits and np.array_equal(law.query.values, np.eye(space.size)) and law.model == "central"
        yield proofs.agreement("the mechanism is for the question's users", proofs.PROVED, fits)
        yield proofs.agreement("it is the one asked for", proofs.PROVED, self.by in (None, released(law)))
        alpha, delta = self.privacy.alpha, self.privacy.delta
        if isinstance(law, TreeHistogram):
            found, lost = law.alpha * _NEARLY, 0.0
        else:
            kept = law.guarantee
            emd = isinstance(kept, EMDPrivacy)
            found, lost = Fraction(kept.alpha) if emd else Fraction(10**9), kept.delta
        words = f"privacy of users: alpha at most {alpha:g}, delta = {delta:g}"
        yield Claim(
            words, self.privacy_checked(law, given), float(alpha - found), found <= alpha and lost <= delta
        )
        spare = stated.value - self.error(law)
        how = proofs.PROVED if isinstance(law, TreeHistogram) else proofs.RECOMPUTED
        room = 0.0 if how == proofs.PROVED else 1e-12 * stated.value
        yield Claim(f"expected distance at most {stated.value!r}", how, spare, spare >= -room)

    def least_cost(self, stated: Certificate, given: None) -> float:
        return -math.inf if self.floor is None else self.floor

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield the lower bound, then the law of each mechanism."""
        if self.floor is not None:
            yield Bound(self.floor, proofs.ClosedBound())
        for release in NAMES if self.by is None else (self.by,):
            try:
                law = self.law(release, clock)
                yield Law(law, self.error(law), (proofs.LawProof(),))
            except MechdesignError as error:
                if self.by is not None or release == "tree":
                    raise
                if isinstance(error, SolverError):
                    clock.failed(error, f"the {release} release was not tried")

    def law(self, release: str, clock: Clock) -> Any:
        """Return one of the mechanisms, at the largest privacy loss allowed."""
        alpha, delta = self.privacy.alpha, self.privacy.delta
        if release == "tree":
            return private_tree(self.space, alpha, self.items, self.users)
        if release == "itemwise":
            plain = {"alpha": alpha * (1 - 1e-8), "accounting": "composition"}
            asked: dict[str, Any] = {"alpha": alpha, "delta": delta} if delta else plain
            asked |= {"items": self.items, "users": self.users, "time_limit": clock.limit()}
            return ItemwiseRelease(self.space, **asked)
        refuse(release == "gaussian" and not delta, "delta", delta, "Gaussian noise needs delta > 0")
        normal: dict[str, Any] = {"gaussian": True, "delta": delta} if release == "gaussian" else {}
        return LinearRelease(LinearQuery.histogram(self.space), alpha, "central", self.users, **normal)

    @cached_property
    def _reference_tree(self) -> TreeHistogram:
        return private_tree(self.space, self.items * 2.0**-20 / self._shortest, self.items, self.users)

    @cached_property
    def _shortest(self) -> float:
        return float(self.space.distances[~np.eye(self.space.size, dtype=bool)].min())

    def error(self, law: Any) -> float:
        """Return the expected earth mover's distance, or an upper bound on it, for all data; rounded up."""
        if isinstance(law, TreeHistogram):
            return law.error_bound
        space, edges, n = self.space, self._reference_tree, self.space.size
        if isinstance(law, LinearRelease):
            deviation = law.scale if law.gaussian else law.scale * math.sqrt(2)
            points = edges.below.sum(axis=0)
            spread = deviation * np.sqrt(points * (1 - points / n))
            known = frequency.laplace_error_bound(space, deviation / math.sqrt(2))
        else:
            channel, reports = law.channel, law.total
            inverse = np.asarray(channel.unbias(np.eye(channel.outputs))) @ edges.below
            squares = np.asarray(channel.dense) @ inverse**2
            rounded = _ROOM * squares.max(axis=0)
            spread = np.sqrt(np.maximum((squares - edges.below).max(axis=0) + rounded, 0.0) / reports)
            known = frequency.emd_error_bound(channel, space, reports=reports)
            known += space.diameter * math.sqrt(n * _ROOM / reports)
        # rounding to steps adds less than 1e-7 of the variance
        return min(known, float(edges.lengths @ spread)) * (1 + 1e-6)

    def fit(self, datasets: Numbers, result: Result, *, sizes: Numbers | None = None) -> FrequencyFit:
        """Release the histogram by a result of `solve`, with the operating system's randomness.

        Parameters
        ----------
        datasets : array_like of int, shape (users, items)
            Point indices; or counts of all items together, shape (n,), with `sizes`, for mechanisms that see counts alone.
        result : Result
        sizes : int or array_like, optional
            As in `TreeHistogram.release`.
        """
        law = checks.instance("result", result, Result).mechanism
        if isinstance(law, TreeHistogram):
            return law.release(datasets, sizes=sizes)
        if isinstance(law, ItemwiseRelease):
            DataError.when(sizes is not None, "sizes: is for counts: every item is reported by itself here")
            return FrequencyEstimate(law.channel, self.space).fit(law.release(datasets))
        counts = self._reference_tree._counts(datasets, sizes)
        noisy = law.release(counts, sizes=self.items if self.users > 1 else None)
        deviation = law.rms() / math.sqrt(len(noisy))
        return frequency.centred_fit(noisy, deviation, self.error(law), self.space, self.users)

    # -- what a result says ------------------------------------------------------------------------------------

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the errors as earth mover's distances to the truth; the half-width is by Cantelli's inequality."""
        mean = spread = self.error(result.mechanism)
        if isinstance(result.mechanism, TreeHistogram):
            law = result.mechanism
            absolute, squares = law.moments
            deviations = law.lengths * np.sqrt(np.maximum(squares - absolute**2, 0.0))
            spread = float(np.linalg.norm(deviations)) / law.total
            return Accuracy(math.hypot(mean, spread), mean, mean + math.sqrt(19) * spread)
        return Accuracy(mean, mean, math.sqrt(20) * mean)  # the bound holds for the root mean square, too

    def audit(self, result: Result) -> pd.DataFrame:
        """Compare the guarantee with the requirement."""
        alpha, law = self.privacy.alpha, result.mechanism
        held = float(law.alpha) if isinstance(law, TreeHistogram) else law.guarantee.alpha
        return audit_row("users", held, alpha)

    def tradeoff(self, result: Result, at: Any = ()) -> TradeOff:
        return points_of(self.privacy.user_level(self.space), at)

    def consumption(self, result: Result) -> Consumption:
        return replace(Consumption.of(self.privacy.user_level(self.space)), neighbours=self.neighbours)

    def stated(self, result: Result) -> str:
        unit = self.space.unit or "unit of the space"
        return f"{self.privacy}; 1 round; one user's {self.items} items; expected earth mover's distance {result.value:.6g} ({unit})"

    def describe(self, result: Result) -> Description:
        unit = self.space.unit or "the space's unit"
        return Description(
            title=f"The histogram of {self.users} users",
            what=f"{self.users} users hold {self.items} items each, points of a space of {self.space.size}. The histogram of all items is released, "
            "without bias; the answer may have negative entries.",
            unit="The unit of privacy is all items of one user. No set of answers is likelier under one user's data than e^(α t) times under other data "
            f"of the same user at an earth mover's distance of t, plus δ, where {self.privacy}; whatever changes, α t is at most {self.privacy.alpha * self.space.diameter:.6g}. How many items a user holds is public.",
            loss=f"expected earth mover's distance to the true histogram, in {unit}",
            picture="Expected earth mover's distance of each mechanism.",
        )

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield the tree and the published releases with their errors."""
        for release, name in NAMES.items():
            with suppress(MechdesignError):
                yield name, self.error(self.law(release, Clock()))

    def plot(self, result: Result, **options: float) -> Any:
        rivals = dict(self.rivals(result))
        label = f"expected earth mover's distance ({self.space.unit or 'unit of the space'})"
        fig = draw_bars(rivals, [*rivals.values()], options, xlabel=label, xscale="log")
        if result.lower_bound:
            fig.axes[0].axvline(result.lower_bound, color=COLOURS[6], linewidth=0.8)
        return fig
