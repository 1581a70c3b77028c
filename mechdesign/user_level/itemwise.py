r"""PrivEMDItemWise: every item through a private channel, then released without order.

A channel with item-level α₀-d-DP is applied to each item of each user and the reports are shuffled. Datasets of
equal size m at earth mover's distance t differ, in the best pairing, in k ≤ m positions moved by mt in all, so the
release is (α, δ)-EMD-DP with

* **composition**: α = mα₀, δ = 0;
* **shuffling**: α is the largest m f(t)/t over distances t, with f(t) the privacy loss of one item moved by t among N shuffled items:
  N = m in the local model (one user's own), N = nm in the central model (Theorem 4.4; proof and numbers in `mechdesign.accounting.shuffling`).

`ItemwiseRelease` goes both ways: from (α, δ) to the largest α₀, or from a channel to its α. Channels are in
`mechdesign.channels`; `release` is that of `mechdesign.model.table.Drawn`, whose `Deployment` shuffles. A certificate, an audit and a lower bound are of
a histogram that is estimated so: `UserHistogram` in `histogram`.

**Datasets of any sizes** (BoundedEMDReduction). Every user draws s items with replacement from its own data; a bounded (α, δ)-EMD-DP mechanism runs on the draws.

**Guarantee.** Let EMD(D, D′) ≤ r and π be their optimal plan. Draw s pairs from π: their marginals are the draws of the two
runs, so by joint convexity the hockey-stick divergence of the outputs is at most the mean, over the pairs, of
the bounded mechanism's. The draws are at EMD at most :math:`\bar Z = \frac1s\sum Z_i`, Z i.i.d. in [0, Δ] (Δ the
diameter) of mean at most r. By Chernoff, for :math:`r < a < \Delta`,

.. math:: P[\bar Z \ge a] \le e^{-s\,\mathrm{KL}(a/\Delta \,\|\, r/\Delta)} =: \eta,
          \qquad \mathrm{KL}(a\|r) = a\log\tfrac ar + (1 - a)\log\tfrac{1-a}{1-r},

(for [0, 1]-variables the moment generating function is at most Bernoulli's, and the bound grows with the mean).
Below a the guarantee is (αa, δ), above it the divergence is at most 1: together (αa, δ + η). With a(r) solved from the allowed η,
this is discrete (α a(r)/r, r)-EMD-DP. If :math:`s\log(\Delta/r) \le \log(1/\eta)` then a = Δ, and no failure is possible.

Imola et al. (Lemma 5.2, Theorem 5.3) use Bernstein's inequality with variance ≤ r; Chernoff's bound is never weaker.
It holds in both models: in the central one only one user's draws change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import InitVar
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from mechdesign import checks
from mechdesign.accounting.shuffling import ACCOUNTING, amplification, calibrate_item_alpha, shuffled_alpha
from mechdesign.channels.channel import Channel, Response
from mechdesign.channels.responses import ClusteredResponse
from mechdesign.checks import Checked, field, refuse, settle
from mechdesign.errors import DataError, DesignError, SolverError
from mechdesign.evidence.exact import least_kept
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.mechanism import Deployment, Drawn, Simulation
from mechdesign.solvers import Deadline
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices, Numbers, Randomness
from mechdesign.user_level.linear_release import (
    MODELS,
    DiscreteEMDPrivacy,
    EMDPrivacy,
    LinearRelease,
    checked_users,
)

_TRIED, _TRIES = 400, 10
"""Most points of a space for which further channels are tried to enlarge α₀, and most of these channels."""
_ENOUGH = 0.99  # share of the requested α at which no further channel is tried


@serializable("itemwise-release", eq=False)
class ItemwiseRelease(Checked, Drawn):
    r"""Shuffled release of all items through one channel, private in the earth mover's distance.

    The stand-alone verifier does not cover it.

    Parameters
    ----------
    space : MetricSpace
    alpha : float, optional
        Required α per unit of EMD, for which the largest item-level α₀ is found. Give exactly one of
        `alpha`, `item_alpha` and `channel`.
    delta : float
        δ > 0; with δ = 0 only ``accounting="composition"`` exists.
    items : int
        m, the items of every user (sizes are public: bounded).
    users : int
        n, central model only.
    model : {"central", "local"}
    accounting : {"numerical", "closed-form", "composition"}
    item_alpha : float, optional
        The α₀ for which the channel is made instead; its exact loss, `channel_loss`, may be less.
    channel : Channel, optional
        Your own channel on the points of `space`; α₀ is its exact metric loss. By default metric randomised
        response on clustered spaces, elsewhere the exponential mechanism of largest α-private slope.
    radius : float, optional
        Protect only pairs with EMD ≤ radius, with (α · radius, δ): the discrete definition. With one δ for all
        pairs, up to the diameter, group privacy over many steps makes shuffling useless once α · diameter is
        large; a radius states which changes matter. `loss` gives the guarantee of farther pairs.
    time_limit : float, optional
        Seconds for construction, not stored: the largest α₀ known by then to meet α is used.

    Raises
    ------
    SolverError
        The exact loss of the channel's table was not known within the time limit: without it no guarantee holds.
    DesignError
        δ = 0 with shuffling, α₀ beyond the closed form's condition, not exactly one requirement.

    Examples
    --------
    >>> space = MetricSpace.clustered(3, 4, within=0.1)
    >>> item = ItemwiseRelease(space, alpha=20.0, delta=1e-6, items=30, users=1000)
    >>> round(item.item_alpha, 3), item.guarantee.epsilon(0.05) <= 1.0
    (3.657, True)
    >>> reports = item.sample(np.zeros((1000, 30), dtype=int), rng=0)
    >>> reports.shape
    (30000,)
    """

    space: MetricSpace = field(MetricSpace)
    alpha: float = field(check=checks.positive, side=checks.DOWN, default=None)
    delta: float = 0.0
    items: int = field(check=checks.integer, least=1, default=1)
    users: int = field(check=checked_users, model=lambda self: self.model, default=1)
    model: str = "central"
    accounting: str = field(check=checks.one_of, allowed=ACCOUNTING, default="numerical")
    item_alpha: float = field(check=checks.positive, side=checks.DOWN, default=None)
    channel: Response = field(Response, default=None)
    radius: float | None = None
    time_limit: InitVar[float | None] = None

    def __post_init__(self, time_limit: float | None) -> None:
        deadline = Deadline(time_limit)
        given = [name for name in ("alpha", "item_alpha", "channel") if getattr(self, name) is not None]
        refuse(len(given) != 1, "alpha, item_alpha, channel", given, "give exactly one of the three")
        super().__post_init__()
        target = self.alpha
        if target is not None:
            # Making the channel and computing its exact loss get the rest of the time.
            settle(self, item_alpha=self._calibrated(self.accounting, deadline.part(0.3).limit()))
        if self.channel is None:
            settle(self, channel=default_channel(self.space, self.item_alpha, deadline))
        if isinstance(self.channel, Channel):
            self.channel.quotients(deadline)
        if self.item_alpha is None:
            settle(self, item_alpha=self.channel_loss)
        if not math.isfinite(self.channel_loss):
            raise DesignError("channel: a report possible from one item is impossible from another (α₀ = ∞)")
        settle(self, alpha=self._shuffled(self._loss, self.accounting, self.channel.epsilon))
        if target is not None:
            self._enlarge(target, deadline)
            settle(self, alpha=min(target, self.alpha))

    @property
    def _asked(self) -> dict[str, Any]:
        """What every accounting is told."""
        return {"total": self.total, "delta": self.delta, "diameter": self.space.diameter}

    def _calibrated(self, accounting: str, limit: float | None = None) -> float:
        """Return the largest α₀ found for this α, valid for any channel."""
        asked = {**self._asked, "items": self.items, "radius": self.radius, "accounting": accounting}
        return calibrate_item_alpha(self.alpha, time_limit=limit, **asked)

    def _shuffled(self, item_alpha: float, accounting: str, item_epsilon: float | None = None) -> float:
        """Return α for this α₀, using the largest loss ε₀ of the channel if it is known."""
        asked = {**self._asked, "items": self.items, "radius": self.radius, "accounting": accounting}
        return shuffled_alpha(item_alpha, item_epsilon=item_epsilon, **asked)

    def _enlarge(self, target: float, deadline: Deadline) -> None:
        """Raise α₀ while the guarantee of the actual channel meets the target: its loss is less than α₀ · diameter.

        This saves 4.5% of the mean distance between item and report (median; at most 45%; results/ablations, itemwise-release).
        """
        factor, tries = 2.0, _TRIES if self.space.size <= _TRIED else 0
        while tries and self.alpha < _ENOUGH * target and not deadline.passed:
            tries, wanted = tries - 1, self.item_alpha * factor
            try:
                channel = default_channel(self.space, wanted, deadline)
                if isinstance(channel, Channel):
                    channel.quotients(deadline)
                loss = channel.metric_loss(self.space)
                reached = self._shuffled(loss or wanted, self.accounting, channel.epsilon)
            except SolverError as error:
                if error.status != "limit":
                    raise
                return  # the present channel stays
            except DesignError:
                reached = math.inf
            if reached <= target:
                settle(self, item_alpha=wanted, channel=channel, channel_loss=loss, alpha=reached)
            else:
                factor = math.sqrt(factor)

    def to_fields(self) -> dict[str, object]:
        """Return the fields that a file stores: the channel determines everything else."""
        names = ("space", "delta", "items", "users", "model", "accounting", "channel", "radius")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def channel_loss(self) -> float:
        """Exact metric loss of the channel on `space`, rounded up; at most `item_alpha`."""
        return self.channel.metric_loss(self.space)

    @property
    def _loss(self) -> float:
        """α₀ for the accounting: the channel's exact loss, or `item_alpha` if that is 0."""
        return self.channel_loss or self.item_alpha

    def loss(self, emd: float, *, positions: int | None = None) -> tuple[float, float]:
        """Return (ε, δ) for two datasets of one user at this earth mover's distance, from the actual channel.

        `positions` is the number of items that change, if it is known (by default all of them). ε is often far below
        α · EMD, as the accounting is for this distance alone.
        """
        asked = {**self._asked, "accounting": self.accounting, "item_epsilon": self.channel.epsilon}
        asked |= {"positions": self.items if positions is None else positions}
        got = amplification(self._loss, moved=self.items * checks.non_negative("emd", emd), **asked)
        return got.epsilon, got.delta

    @property
    def total(self) -> int:
        """N, the number of items shuffled together: m locally, nm centrally."""
        return int(self.items) * int(self.users)

    @cached_property
    def guarantee(self) -> EMDPrivacy | DiscreteEMDPrivacy:
        """The guarantee of the release; discrete if a `radius` was given."""
        delta = 0.0 if self.accounting == "composition" else self.delta
        if self.radius is not None:
            return DiscreteEMDPrivacy(self.alpha, self.radius, delta, self.model, "bounded")
        return EMDPrivacy(self.alpha, delta, self.model, "bounded")

    def drawn(self, x: Numbers, source: Simulation | Deployment) -> Indices:
        """Draw the shuffled reports with the randomness of `source`.

        Parameters
        ----------
        x : array of int
            Point indices. Central: shape (users, items). Local: one user's items, (items,), or (rows, items), each
            row a user's own release.
        source : Simulation or Deployment

        Returns
        -------
        ndarray of int
            Reports in random order, shape (users · items,) centrally, the shape of `x` locally.
        """
        items = checked_items(self.space, x, (self.users, self.items), self.model)
        reports = self.channel.drawn(items, source)
        rows = reports.reshape(-1, self.total)  # one row for each set that is shuffled together
        mixed = np.take_along_axis(rows, source.order(*rows.shape), axis=1)
        return mixed.ravel() if self.model == "central" else mixed.reshape(reports.shape)

    def compare(self) -> pd.DataFrame:
        """Tabulate α₀ for this α (and α for this α₀) under each accounting; missing if the closed form does not apply.

        The release's own accounting is for its actual channel; the others are for any channel of loss at most α₀ per unit.
        """
        rows = dict.fromkeys(ACCOUNTING, (math.nan, math.nan))
        for accounting in ACCOUNTING:
            with suppress(DesignError):
                rows[accounting] = self._calibrated(accounting), math.nan
                rows[accounting] = rows[accounting][0], self._shuffled(self.item_alpha, accounting)
        rows[self.accounting] = self.item_alpha, self.alpha
        return pd.DataFrame(
            [(name, *row) for name, row in rows.items()], columns=["accounting", "item_alpha", "alpha"]
        )


def collection(datasets: Any) -> list[Any]:
    """Return the users' collections as a list; a data frame gives its rows."""
    with DataError.where("datasets: must hold one collection of point indices per user"):
        if isinstance(datasets, Mapping):
            raise TypeError
        return list(np.asarray(datasets) if hasattr(datasets, "columns") else datasets)


def checked_items(space: MetricSpace, datasets: Numbers, shape: tuple[int, int], model: str) -> Indices:
    """Return point indices of shape (users, items) centrally, (…, items) locally, or raise DataError."""
    if not hasattr(datasets, "dtype"):
        datasets = collection(datasets)
        with DataError.where("datasets: must hold one collection of point indices per user"):
            sizes = {len(row) for row in datasets if isinstance(row, (list, tuple)) or np.ndim(row)}
        if len(sizes) > 1:
            raise DataError(
                "datasets: users hold different numbers of items, but a bounded mechanism needs "
                "equal sizes; draw the same number from each with SamplingReduction(...).sample(datasets)"
            )
    items = space.indices(datasets, name="datasets")
    expected, got = (shape, items.shape) if model == "central" else (shape[1:], items.shape[-1:])
    DataError.when(got != expected or items.ndim > 2, f"datasets: must have shape {expected}: users, items")
    return items


def default_channel(space: MetricSpace, item_alpha: float, deadline: Deadline) -> Response:
    """Return metric randomised response on clusters, where all rows have one normaliser, else the exponential mechanism."""
    if space.kind == "clustered":
        return ClusteredResponse(space, item_alpha)
    return Channel.exponential(space, item_alpha, time_limit=deadline.limit())


@serializable("sampling-reduction")
class SamplingReduction(Checked):
    """Sampling with replacement, which turns a bounded guarantee into a discrete one for datasets of any sizes.

    Parameters
    ----------
    alpha : float
        α of the bounded mechanism, per unit of distance.
    radius : float
        r, the resolution of the discrete guarantee, in the unit of distance, below `diameter`.
    samples : int
        s, the items drawn from each user.
    failure : float
        η in (0, 1): probability that the draws are farther apart than `stretched`; it adds to δ.
    delta : float
        δ of the bounded mechanism.
    diameter : float
        Largest distance of the space.
    model : {"local", "central"}

    Examples
    --------
    >>> reduction = SamplingReduction(5.0, 0.1, samples=200, failure=1e-8)
    >>> round(reduction.stretched, 4), round(reduction.guarantee.alpha, 3)
    (0.2498, 12.49)
    >>> SamplingReduction(5.0, 0.1, samples=2000).guarantee.alpha < 8
    True
    """

    alpha: float = field(check=checks.positive)
    radius: float = field(check=checks.positive)
    samples: int = field(check=checks.integer, least=1, most=1 << 40, default=200)
    failure: float = field(check=checks.positive, default=1e-8)
    delta: float = field(check=checks.probability, below_one=True, default=0.0)
    diameter: float = field(check=checks.positive, default=1.0)
    model: str = field(check=checks.one_of, allowed=MODELS, default="central")

    def _post_check(self) -> None:
        allowed = f"must be below the space's diameter, {self.diameter}"
        refuse(self.radius >= self.diameter, "radius", self.radius, allowed)
        refuse(self.failure + self.delta >= 1, "failure", self.failure, "must be small: it adds to delta")

    @cached_property
    def stretched(self) -> float:
        """a(r): largest EMD between the draws of two datasets at EMD r, except with probability `failure`; rounded up."""
        r, need = self.radius / self.diameter, math.log(1 / self.failure) / self.samples
        if math.log(1 / r) <= need:
            return self.diameter

        def over(a: float) -> float:
            return need * (1 + 1e-12) - float(special.rel_entr(a, r) + special.rel_entr(1 - a, 1 - r))

        found = least_kept(over, 1.0, least=r, most=1.0, xtol=1e-13 * r)
        return min(found * self.diameter * (1 + 1e-12), self.diameter)

    @property
    def guarantee(self) -> DiscreteEMDPrivacy:
        """Discrete (α a(r)/r, r)-EMD-DP with δ + failure (δ alone where a(r) is the diameter)."""
        failure = 0.0 if self.stretched >= self.diameter else self.failure
        stretch = self.stretched / self.radius * (1 + 1e-15)
        return DiscreteEMDPrivacy(self.alpha * stretch, self.radius, self.delta + failure, self.model)

    def sample(self, datasets: Iterable[Numbers], *, rng: Randomness = None) -> Indices:
        """Draw `samples` items with replacement from every user's collection, shape (users, samples).

        Parameters
        ----------
        datasets : sequence of sequences of int
            One collection per user, of any sizes ≥ 1.

        Examples
        --------
        >>> SamplingReduction(5.0, 0.1, samples=4).sample([[7], [1, 2, 3]], rng=0).shape
        (2, 4)
        """
        return self.drawn(datasets, Simulation(rng))

    def drawn(self, datasets: Iterable[Numbers], source: Simulation | Deployment) -> Indices:
        """Draw with the randomness of `source`."""
        rows = []
        checks.instance("source", source, Simulation, Deployment)
        for items in collection(datasets):
            own = checks.indices("datasets", items, 1 << 53)
            DataError.when(own.ndim != 1, "datasets: must be a collection of point indices a user")
            rows.append(own[source.below(own.size, self.samples)])
        DataError.when(not rows, "datasets: is empty; at least one user is needed")
        return np.array(rows, dtype=np.int64)


@serializable("reduced-release", eq=False)
class ReducedRelease(Checked):
    """A bounded mechanism extended to datasets of any sizes by sampling.

    Parameters
    ----------
    mechanism : LinearRelease or ItemwiseRelease
        An `ItemwiseRelease` fixes the number of draws: its `items`.
    radius : float
        r of the discrete guarantee, in the unit of the space.
    samples : int, optional
        Draws per user, for a `LinearRelease`.
    failure : float
        Added to δ.

    Examples
    --------
    >>> from mechdesign.spaces.space import MetricSpace
    >>> space = MetricSpace.line([0.0, 0.5, 1.0])
    >>> item = ItemwiseRelease(space, alpha=10.0, delta=1e-7, items=50, users=3)
    >>> reduced = ReducedRelease(item, radius=0.1, failure=1e-7)
    >>> reduced.sample([[0, 1], [2], [1, 1, 1, 0]], rng=0).shape
    (150,)
    >>> reduced.guarantee.radius, round(reduced.guarantee.delta, 12)
    (0.1, 2e-07)
    """

    mechanism: LinearRelease | ItemwiseRelease = field(LinearRelease, ItemwiseRelease)
    radius: float = field(check=checks.positive)
    samples: int | None = None
    failure: float = 1e-8

    def _post_check(self) -> None:
        held = self.mechanism
        if isinstance(held, ItemwiseRelease):
            refuse(held.radius is not None, "mechanism", "radius", "must protect every distance: no radius")
            if self.samples not in (None, held.items):
                raise DesignError.of("samples", self.samples, f"must be its items, {held.items}")
            checks.settle(self, samples=held.items)
        elif self.samples is None:
            raise DesignError.of("samples", None, "say how many items each user draws")
        _ = self.reduction

    @property
    def space(self) -> MetricSpace:
        """The mechanism's metric space."""
        return self.mechanism.space

    @cached_property
    def reduction(self) -> SamplingReduction:
        """The sampling step."""
        bounded = self.mechanism.guarantee
        assert self.samples is not None and isinstance(bounded, EMDPrivacy)
        drawn, kept = (self.radius, self.samples, self.failure), (bounded.delta, self.space.diameter)
        return SamplingReduction(bounded.alpha, *drawn, *kept, bounded.model)

    @property
    def guarantee(self) -> DiscreteEMDPrivacy:
        """Discrete EMD-DP of sampling and release together."""
        return self.reduction.guarantee

    def sample(self, datasets: Iterable[Numbers], *, rng: Randomness = None) -> Array | Indices:
        """Sample from every user's items (any sizes), then release; local: one row per user. For simulation."""
        source = Simulation(rng)
        drawn = self._draws(datasets, source)
        linear = isinstance(self.mechanism, LinearRelease)
        return self.mechanism.sample(self.space.histogram(drawn) if linear else drawn, rng=source.rng)

    def release(self, datasets: Iterable[Numbers]) -> Array | Indices:
        """Sample and release exactly, with the operating system's randomness.

        Raises
        ------
        DataError
            An item that is no point of the space, or a user without items. The guarantee does not cover that refusal.
        """
        drawn = self._draws(datasets, Deployment())
        if isinstance(self.mechanism, LinearRelease):  # whole counts: nothing is rounded
            drawn = np.rint(self.space.histogram(drawn) * drawn.shape[1])
        return self.mechanism.release(drawn)

    def _draws(self, datasets: Iterable[Numbers], source: Simulation | Deployment) -> Indices:
        checked = [self.space.indices(items, name="datasets") for items in collection(datasets)]
        return self.reduction.drawn(checked, source)
