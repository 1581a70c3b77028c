"""A problem on one covariance in numbers: what files hold of it, and what proofs read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from mechdesign.accounting.profile import gaussian_most
from mechdesign.errors import DesignError
from mechdesign.model.covariance import CovariancePrivacy
from mechdesign.model.declared import OwnRows
from mechdesign.typing import Array, Indices

MOST_NUMBERS, MOST_ENTRIES = 64, 4_000_000
"""Numbers that get noise, and entries of changes and of own rows, at most: semidefinite programs of more take minutes."""


@dataclass(frozen=True, eq=False)
class DeclaredCovariance(OwnRows):
    """A problem on one covariance in numbers.

    Parameters
    ----------
    changes, neighbours
        As in `Covariance`.
    objective : str
        Its name in words.
    cost : array
        Of all columns, those of S row by row, then further variables; `constant` is added.
    labels : tuple of str
        Of the families of own rows.
    family, equal, offsets : arrays, one entry a row
        Its family, whether it is an equality, and its constant.
    places, coefficients : arrays, shapes (t, 2) and (t,)
        (row, column) of each coefficient, in the order of rows.
    privacy : tuple of CovariancePrivacy
    """

    changes: Array
    neighbours: str
    objective: str
    cost: Array
    constant: float
    labels: tuple[str, ...]
    family: Indices
    equal: Indices
    offsets: Array
    places: Indices
    coefficients: Array
    privacy: tuple[CovariancePrivacy, ...]

    def __post_init__(self) -> None:
        self.check_rows(self.cost, self.changes, np.array(self.constant))
        size = max(self.changes.size, len(self.family) * self.n**2)
        if self.n > MOST_NUMBERS or size > MOST_ENTRIES:
            allowed = f"numbers, and {size} entries of changes and rows, are too many: at most {MOST_NUMBERS} and {MOST_ENTRIES}"
            raise DesignError.of("covariance", self.n, allowed)
        if self.further < 0:
            raise DesignError("rows: do not fit the unknown")

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.cost)

    def column(self, j: int) -> str:
        """The name of an entry or of a further variable."""
        i, k = divmod(j, self.n)
        return f"S[{i}, {k}]" if i < self.n else f"t{j - self.n**2 + 1}"

    @property
    def n(self) -> int:
        """Numbers that get noise."""
        return int(self.changes.shape[1])

    @property
    def further(self) -> int:
        """Further variables: those of piecewise linear atoms."""
        return len(self.cost) - self.n**2

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down; of several requirements the least."""
        return min(asked.budget for asked in self.privacy)

    @cached_property
    def most(self) -> Fraction:
        """The same from above: no covariance that consumes more keeps the requirement."""
        return min(gaussian_most(asked.privacy) for asked in self.privacy)

    @cached_property
    def weights(self) -> Array:
        """G of each own row, symmetric, shape (rows, n, n)."""
        found = self.matrix[:, : self.n**2].toarray().reshape(-1, self.n, self.n)
        return np.asarray((found + found.swapaxes(1, 2)) / 2)

    @cached_property
    def cost_weights(self) -> Array:
        """V of the objective, symmetric."""
        found = self.cost[: self.n**2].reshape(self.n, self.n)
        return np.asarray((found + found.T) / 2)

    @property
    def start(self) -> Array:
        """Multipliers that leave own rows out: those of the objective's rows alone, alike."""
        own = np.array([label == "objective" for label in self.labels], dtype=bool)[self.family]
        return np.where(own & (self.equal == 0), 1 / max(int(own.sum()), 1), 0.0)

    @property
    def plain_weights(self) -> Array:
        """V of the loss without own rows."""
        return np.asarray(self.cost_weights + np.tensordot(self.start, self.weights, axes=1))

    def shifted(
        self, multipliers: tuple[Fraction, ...], *, costs: bool = True
    ) -> tuple[list[list[Fraction]], list[Fraction], Fraction]:
        """V', what is charged for each further variable, and the constant, exactly; without costs those of own rows alone."""
        total = [Fraction(x) if costs else Fraction(0) for x in self.cost.tolist()]
        for (row, column), value in zip(self.places.tolist(), self.coefficients.tolist()):
            if multipliers[row]:
                total[column] += multipliers[row] * Fraction(value)
        constant = sum(
            (nu * Fraction(k) for nu, k in zip(multipliers, self.offsets.tolist())),
            Fraction(self.constant if costs else 0),
        )
        n = self.n
        shifted = [[(total[i * n + j] + total[j * n + i]) / 2 for j in range(n)] for i in range(n)]
        return shifted, total[n * n :], constant

    def admissible(self, multipliers: tuple[Fraction, ...]) -> bool:
        """Whether multipliers have the signs that their rows allow."""
        return len(multipliers) == len(self.family) and all(
            nu >= 0 or equal for nu, equal in zip(multipliers, self.equal.tolist())
        )

    def row(self, i: int) -> tuple[Array, dict[int, float], float]:
        """G as stated, coefficients of further variables, and the constant of an own row."""
        start, end = self.matrix.indptr[i : i + 2]
        columns, values = self.matrix.indices[start:end], self.matrix.data[start:end]
        found, inside = np.zeros(self.n**2), columns < self.n**2
        found[columns[inside]] = values[inside]
        own = zip((columns[~inside] - self.n**2).tolist(), values[~inside].tolist())
        return found.reshape(self.n, self.n), dict(own), float(self.offsets[i])
