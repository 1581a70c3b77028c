"""What `MetricChannel.solve` returns: a certified channel with its audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.channels.channel import Channel
from mechdesign.channels.optimal.account import channel_account, channel_alternatives, draw_channel
from mechdesign.channels.optimal.certificate import ChannelCertificate
from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import instance, settle
from mechdesign.problem.words import never_sent
from mechdesign.typing import Array, Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ChannelResult", "pair_duals"]


@serializable("channel-result")
@dataclass(frozen=True, eq=False)
class ChannelResult(OldResult):
    """A certified channel; see `MetricChannel.solve`."""

    certificate: ChannelCertificate | None = None

    def __post_init__(self) -> None:
        instance("solver_report", self.solver_report, SolveReport)
        held = self.certificate
        if held is None:
            if self.lower_bound is not None or self.status is not Status.UNCERTIFIED:
                raise DesignError.of("certificate", None, "is missing: without one nothing is proved")
            return
        weights = instance("mechanism", self.mechanism, Channel).weights
        wanted = getattr(self.design, "question", None)
        if (
            not isinstance(held, ChannelCertificate)
            or weights != held.weights
            or (self.value, self.lower_bound) != (held.value, held.lower_bound)
            or wanted is None
            or not all(np.array_equal(part, held.statement[name]) for name, part in wanted.items())
        ):
            raise DesignError("certificate: is not that of this design, channel, value and lower bound")
        settle(self, duals=pair_duals(held))

    @property
    def channel(self) -> Channel:
        """The channel, with its exact integer weights."""
        return self.mechanism

    def to_frame(self) -> pd.DataFrame:
        """Per item: prior, probability of an unchanged report (square channels), expected loss."""
        matrix, design = self.channel.matrix, self.design
        frame = pd.DataFrame({"item": np.arange(len(matrix)), "prior": design.weights})
        if matrix.shape[0] == matrix.shape[1]:
            frame["unchanged"] = np.diag(matrix)
        frame["expected_loss"] = (matrix * design.losses).sum(axis=1)
        return frame

    def restated(self) -> dict[str, Any]:
        design = self.design
        inputs, reports = (None, None) if design.equalities is None else design.equalities
        stated = {"alpha": design.alpha, "distances": design.space.distances, "prior": design.weights}
        return {**stated, "loss": design.losses, "inputs": inputs, "reports": reports}

    def account(self) -> Account:
        return channel_account(self)

    def alternatives(self) -> pd.DataFrame:
        return channel_alternatives(self)

    def remarks(self) -> list[str]:
        most = self.channel.matrix.max(axis=0)
        return never_sent([str(k) for k in range(len(most))], most, "reports")

    def plot(self, **options: Any) -> Figure:
        """Draw the matrix as shades."""
        return draw_channel(self, **options)

    def _audit(self) -> pd.DataFrame:
        """Privacy of every ordered pair (largest log-ratio against α·d), row sums, and the equalities.

        A pair's dual is the sum of its multipliers over the reports that are in use.
        """
        matrix, design = self.channel.matrix, self.design
        x, other = np.nonzero(~np.eye(len(matrix), dtype=bool))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = matrix[x] / matrix[other]
            lhs = np.log(np.nan_to_num(ratios, nan=0.0, posinf=np.inf).max(axis=1))
        rhs = design.alpha * design.space.distances[x, other]
        names = [f"{a}, {b}" for a, b in zip(x.tolist(), other.tolist())]
        held = {} if self.duals is None else dict(zip(self.duals["index"], self.duals["dual"]))
        dual = np.array([held.get(name, 0.0) for name in names])
        parts = [_family("privacy", names, lhs, rhs, rhs - lhs, dual)]
        equal = {"normalisation": (matrix.sum(axis=1), np.ones(len(matrix)))}
        if design.equalities is not None:
            query, values = design.equalities
            equal["unbiased"] = (matrix @ values).ravel(), query.ravel()
        for family, (got, wanted) in equal.items():
            parts.append(_family(family, range(len(got)), got, wanted, -np.abs(got - wanted), np.nan))
        return pd.concat(parts, ignore_index=True)[AUDIT_COLUMNS]

    def _evidence(self) -> list[str]:
        if self.certificate is None:
            return []
        exact = "verified" if self.certificate.verify() else "FAILED"
        lines = [f"certificate: privacy of all pairs, value and lower bound in exact arithmetic, {exact}"]
        if self.design.equalities is not None:
            lines.append(f"largest bias: {self.certificate.bias:.2g} (proved)")
        return lines


def pair_duals(certificate: ChannelCertificate) -> pd.DataFrame:
    """Each ordered pair's multipliers, summed over the reports that are in use."""
    used = np.array([max(column) > 0 for column in zip(*certificate.weights)])[certificate.triples[:, 2]]
    pairs = pd.DataFrame(certificate.triples[used, :2], columns=["x", "other"])
    sums = pairs.assign(dual=certificate.multipliers[used]).groupby(["x", "other"])["dual"].sum()
    index = [f"{x}, {other}" for x, other in sums.index]
    return pd.DataFrame({"family": "privacy", "index": index, "dual": sums.to_numpy()})


def _family(family: str, index: Any, lhs: Array, rhs: Array, slack: Array, dual: Any) -> pd.DataFrame:
    columns = {"index": [str(i) for i in index], "lhs": lhs, "rhs": rhs, "slack": slack, "dual": dual}
    return pd.DataFrame({**columns, "family": family, "active": slack <= 1e-9})
