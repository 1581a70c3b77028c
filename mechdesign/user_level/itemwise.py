r"""PrivEMDItemWise: every item through a private channel, then released without order.

A channel with item-level α₀-d-DP is applied to each item of each user and the reports are shuffled. Datasets of
equal size m at earth mover's distance t differ, in the best pairing, in k ≤ m positions moved by mt in all, so the
release is (α, δ)-EMD-DP with

* **composition**: α = mα₀, δ = 0;
* **shuffling**: α = mα₀ tanh(½ log u), see `mechdesign.accounting.shuffling`, with N = m shuffled items in the local
  model (one user's own) and N = nm in the central model (Theorem 4.4).

`ItemwiseRelease` goes both ways: from (α, δ) to the largest α₀, or from a channel to the α it gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import cast

import numpy as np
import pandas as pd

from mechdesign.accounting.shuffling import ACCOUNTING, amplification, calibrate_item_alpha, shuffled_alpha
from mechdesign.channels.channel import Channel, Response
from mechdesign.channels.responses import ClusteredResponse
from mechdesign.errors import DataError, DesignError, SolverError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import DOWN, instance, integer, non_negative, one_of, positive, settle
from mechdesign.problem.mechanism import Deployment, Drawn, Simulation
from mechdesign.solvers import Deadline
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Indices, Numbers
from mechdesign.user_level.privacy import DiscreteEMDPrivacy, EMDPrivacy, checked_users


def collection(datasets: Iterable[Numbers]) -> list[Numbers]:
    """The users' collections, in a list; of a frame its rows."""
    try:
        if isinstance(datasets, Mapping):
            raise TypeError
        return list(np.asarray(datasets) if hasattr(datasets, "columns") else datasets)
    except TypeError:
        raise DataError("datasets: must hold one collection of point indices per user") from None


def equal_sizes(datasets: Numbers) -> Numbers:
    """Return datasets as they are, in a list, or raise DataError where users hold different numbers of items."""
    if hasattr(datasets, "dtype"):
        return datasets
    rows = collection(cast(Iterable[Numbers], datasets))
    held = [
        row for row in rows if isinstance(row, (list, tuple)) or (isinstance(row, np.ndarray) and row.ndim)
    ]
    if len({len(row) for row in held}) > 1:
        raise DataError(
            "datasets: users hold different numbers of items, but a bounded mechanism needs "
            "equal sizes; draw the same number from each with sampling_reduction(...).sample(datasets)"
        )
    return cast(Numbers, rows)


def checked_items(space: MetricSpace, datasets: Numbers, shape: tuple[int, int], model: str) -> Indices:
    """Return the point indices of (users, items) centrally, (…, items) locally, or raise."""
    items = space.indices(equal_sizes(datasets), name="datasets")
    expected, got = (shape, items.shape) if model == "central" else (shape[1:], items.shape[-1:])
    if got != expected or items.ndim > 2:
        raise DataError(f"datasets: must have shape {expected}: users and items")
    return items


_TRIED, _TRIES = 400, 10
"""Points up to which further channels are tried for the largest α₀, and how many."""
_ENOUGH = 0.99  # of the α asked for: no further channel is tried


@serializable("itemwise-release")
@dataclass(frozen=True, eq=False)
class ItemwiseRelease(Drawn):
    r"""Shuffled release of all items through one channel, private in the earth mover's distance.

    Parameters
    ----------
    space : MetricSpace
    alpha : float, optional
        Wanted α per unit of EMD; the largest item-level α₀ that stays within is found. Give exactly one of
        `alpha`, `item_alpha` and `channel`.
    delta : float
        δ > 0; with δ = 0 only ``accounting="composition"`` exists.
    items : int
        m, items of every user (sizes are public: bounded).
    users : int
        n, central model only.
    model : {"central", "local"}
    accounting : {"numerical", "closed-form", "composition"}
    item_alpha : float, optional
        The channel's α₀ instead.
    channel : Channel, optional
        Your own channel on the points of `space`; α₀ is its exact metric loss. By default metric randomised
        response on clustered spaces, elsewhere the exponential mechanism of largest α-private slope.
    radius : float, optional
        Protect only pairs with EMD ≤ radius, with (α · radius, δ): the discrete definition. With one δ for all
        pairs, up to the diameter, group privacy over many steps makes shuffling useless once α · diameter is
        large; a radius says which changes matter. `loss` tells what farther pairs have.
    time_limit : float, optional
        Seconds for making it, not kept with it: the largest α₀ known by then to stay within α is used.

    Raises
    ------
    SolverError
        The exact loss of the channel's table was not known within the time limit: before that nothing is private.
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

    space: MetricSpace
    alpha: float = None  # type: ignore[assignment]
    delta: float = 0.0
    items: int = 1
    users: int = 1
    model: str = "central"
    accounting: str = "numerical"
    item_alpha: float = None  # type: ignore[assignment]
    channel: Response = None  # type: ignore[assignment]
    radius: float | None = None
    time_limit: InitVar[float | None] = None

    def __post_init__(self, time_limit: float | None) -> None:
        deadline = Deadline(time_limit)
        given = [name for name in ("alpha", "item_alpha", "channel") if getattr(self, name) is not None]
        if len(given) != 1:
            raise DesignError.of("alpha, item_alpha, channel", given, "give exactly one of the three")
        for name in ("alpha", "item_alpha"):
            if getattr(self, name) is not None:
                settle(self, **{name: positive(name, getattr(self, name), side=DOWN)})
        instance("space", self.space, MetricSpace)
        settle(self, items=integer("items", self.items, 1), users=checked_users(self.users, self.model))
        one_of("accounting", self.accounting, ACCOUNTING)
        target = self.alpha
        if target is not None:
            # The channel, and its exact loss, have the rest of the time.
            settle(self, item_alpha=self._calibrated(self.accounting, deadline.part(0.3).limit()))
        if self.channel is not None:
            _measure(instance("channel", self.channel, Response), deadline)
            settle(self, item_alpha=self.channel_loss)
        else:
            settle(self, channel=default_channel(self.space, self.item_alpha, deadline))
        if not math.isfinite(self.channel_loss):
            raise DesignError("channel: a report possible from one item is impossible from another (α₀ = ∞)")
        settle(self, alpha=self._shuffled(self._loss, self.accounting, self.channel.epsilon))
        if target is not None:
            self._enlarge(target, deadline)
            settle(self, alpha=min(target, self.alpha))

    def _calibrated(self, accounting: str, time_limit: float | None = None) -> float:
        """The largest α₀ found for this α, whatever the channel."""
        return calibrate_item_alpha(
            self.alpha, items=self.items, total=self.total, delta=self.delta, accounting=accounting,
            diameter=self.space.diameter, radius=self.radius, time_limit=time_limit,
        )  # fmt: skip

    def _shuffled(self, item_alpha: float, accounting: str, item_epsilon: float | None = None) -> float:
        """α for this α₀, and the largest loss ε₀ of the channel where it is known."""
        return shuffled_alpha(
            item_alpha, items=self.items, total=self.total, delta=self.delta, accounting=accounting,
            diameter=self.space.diameter, item_epsilon=item_epsilon, radius=self.radius,
        )  # fmt: skip

    def _enlarge(self, target: float, deadline: Deadline) -> None:
        """Raise α₀ while what the channel in hand guarantees stays within the target: it loses less than α₀ · diameter.

        Brings 4.5% of the mean distance between item and report (median; at most 45%; results/ablations, itemwise-release).
        """
        factor, tries = 2.0, _TRIES if self.space.size <= _TRIED else 0
        while tries and self.alpha < _ENOUGH * target and not deadline.passed:
            tries, wanted = tries - 1, self.item_alpha * factor
            try:
                channel = default_channel(self.space, wanted, deadline)
                loss = channel.metric_loss(self.space)
                reached = self._shuffled(loss or wanted, self.accounting, channel.epsilon)
            except SolverError as error:
                if error.status != "limit":
                    raise
                return  # what is held stays
            except DesignError:
                reached = math.inf
            if reached <= target:
                settle(self, item_alpha=wanted, channel=channel, channel_loss=loss, alpha=reached)
            else:
                factor = math.sqrt(factor)

    def to_fields(self) -> dict[str, object]:
        """What a file stores: the channel, from which everything else follows."""
        names = ("space", "delta", "items", "users", "model", "accounting", "channel", "radius")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def channel_loss(self) -> float:
        """Exact metric loss of the channel on `space`, rounded up."""
        return self.channel.metric_loss(self.space)

    @property
    def _loss(self) -> float:
        """α₀ as the accounting takes it: positive."""
        return self.channel_loss or self.item_alpha

    def loss(self, emd: float, *, positions: int | None = None) -> tuple[float, float]:
        """(ε, δ) for two datasets of one user at this earth mover's distance, from the channel in hand.

        `positions` is the number of items that change, where it is known (all of them by default). Often far below
        α · EMD: one level of the clone divergence need not serve all distances.
        """
        k = self.items if positions is None else positions
        moved, diameter = self.items * non_negative("emd", emd), self.space.diameter
        got = amplification(
            self._loss, moved=moved, positions=k, total=self.total, delta=self.delta, accounting=self.accounting,
            diameter=diameter, item_epsilon=self.channel.epsilon,
        )  # fmt: skip
        return got.epsilon, got.delta

    @property
    def total(self) -> int:
        """N, the number of items shuffled together: m locally, nm centrally."""
        return int(self.items) * int(self.users)

    @cached_property
    def guarantee(self) -> EMDPrivacy | DiscreteEMDPrivacy:
        """What the release satisfies: discrete where a `radius` was given."""
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
        rows = reports.reshape(-1, self.total)  # what is shuffled together
        mixed = np.take_along_axis(rows, source.order(*rows.shape), axis=1)
        return mixed.ravel() if self.model == "central" else mixed.reshape(reports.shape)

    def compare(self) -> pd.DataFrame:
        """α₀ for this α (and α for this α₀) under each accounting; missing where the closed form does not apply.

        Of its own accounting, what the channel in hand has; of the others, for any channel of loss at most α₀ per unit.
        """
        rows = []
        for accounting in ACCOUNTING:
            if accounting == self.accounting:
                rows.append({"accounting": accounting, "item_alpha": self.item_alpha, "alpha": self.alpha})
                continue
            for_alpha = for_item = math.nan
            try:
                for_alpha = self._calibrated(accounting)
                for_item = self._shuffled(self.item_alpha, accounting)
            except DesignError:
                pass
            rows.append({"accounting": accounting, "item_alpha": for_alpha, "alpha": for_item})
        return pd.DataFrame(rows)


def _measure(channel: Response, deadline: Deadline) -> None:
    """Know what a table's losses come from, or raise SolverError at the deadline."""
    if isinstance(channel, Channel):
        channel.quotients(deadline)


def default_channel(space: MetricSpace, item_alpha: float, deadline: Deadline) -> Response:
    """Metric randomised response where all rows have one normaliser (clusters), else the exponential mechanism."""
    if space.kind == "clustered":
        return ClusteredResponse(space, item_alpha)
    channel = Channel.exponential(space, item_alpha, time_limit=deadline.limit())
    _measure(channel, deadline)
    return channel
