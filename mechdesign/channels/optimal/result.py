"""What `MetricChannel.solve` returns: a certified channel with its audit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mechdesign.channels.channel import Channel
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.evidence.serialize import serializable
from mechdesign.typing import Array

__all__ = ["ChannelResult"]


@serializable("channel-result")
@dataclass(frozen=True, eq=False)
class ChannelResult(Result):
    """A certified channel; see `MetricChannel.solve`."""

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

    def _audit(self) -> pd.DataFrame:
        """Privacy of every ordered pair (largest log-ratio against α·d), row sums, and the equalities.

        A pair's dual is the sum of its multipliers over the reports that are in use.
        """
        matrix, design = self.channel.matrix, self.design
        distances, n = design.space.distances, len(self.channel.matrix)
        x, other = np.nonzero(~np.eye(n, dtype=bool))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = matrix[x] / matrix[other]
            lhs = np.log(np.nan_to_num(ratios, nan=0.0, posinf=np.inf).max(axis=1))
        rhs = design.alpha * distances[x, other]
        dual = np.zeros((n, n))
        triples, multipliers = self.certificate.triples, self.certificate.multipliers
        used = matrix.max(axis=0)[triples[:, 2]] > 0
        np.add.at(dual, (triples[used, 0], triples[used, 1]), multipliers[used])
        parts = [
            pd.DataFrame(
                {
                    "family": "privacy",
                    "index": [f"{a}, {b}" for a, b in zip(x.tolist(), other.tolist())],
                    "lhs": lhs,
                    "rhs": rhs,
                    "slack": rhs - lhs,
                    "dual": dual[x, other],
                    "active": rhs - lhs <= 1e-9,
                }
            ),
            _equality_rows("normalisation", matrix.sum(axis=1), np.ones(n)),
        ]
        if design.equalities is not None:
            query, values = design.equalities
            parts.append(_equality_rows("unbiased", (matrix @ values).ravel(), query.ravel()))
        return pd.concat(parts, ignore_index=True)[AUDIT_COLUMNS]

    def _evidence(self) -> list[str]:
        exact = "verified" if self.certificate.verify() else "FAILED"
        lines = [f"certificate: privacy of all pairs in exact arithmetic, {exact}"]
        if self.design.equalities is not None:
            lines.append(f"largest bias: {float(self.certificate.bias):.2g}")
        return lines


def _equality_rows(family: str, lhs: Array, rhs: Array) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "family": family,
            "index": [str(i) for i in range(len(lhs))],
            "lhs": lhs,
            "rhs": rhs,
            "slack": -np.abs(lhs - rhs),
            "dual": np.nan,
            "active": True,
        }
    )
