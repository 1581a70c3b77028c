r"""Quantizers whose output probabilities are affine in the input between knots.

.. math:: p(x, i) = (1 - t)\, s_{k,i} + t\, e_{k,i}, \qquad x \in [x_k, x_{k+1}),\; t = \frac{x - x_k}{x_{k+1} - x_k}

covers every mechanism of this package that maps an interval to finitely many values: OPTM, RQM, ERM
(which jump at the bins), MVU and the exact optimum (which are continuous). Losses, errors and privacy are then
exact: extremes are at the knots, and expectations need only the prior's partial moments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import log_upper
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism import error_curve, pictures, sampling
from mechdesign.quantizers.mechanism.exact_law import ExactLaw
from mechdesign.quantizers.mechanism.selection import (
    Selection,
    check_bins,
    check_range,
    erm_family,
    rqm_family,
)
from mechdesign.typing import Array

__all__ = ["Quantizer"]


@serializable("quantizer")
@dataclass(frozen=True, eq=False)
class Quantizer:
    """A randomized quantizer on an interval.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values, increasing.
    knots : array_like, shape (K + 1,)
        Increasing; the first and last are the input range.
    starts, ends : array_like, shape (K, m)
        Output probabilities at the start of each segment (limit from the right) and at its end (limit from
        the left). At a knot the mechanism takes the value from the right, at the last knot from the left.
    selection : Selection, optional
        The selection probabilities behind it.
    law : ExactLaw, optional
        The exact rational law that the tables round; what is certified and sampled exactly.

    Examples
    --------
    >>> mechanism = Quantizer.rqm(bins=[-2.7, -0.9, 0.9, 2.7], q=0.22, input_range=(-1, 1))
    >>> round(mechanism.privacy_loss(), 5)
    0.99877
    >>> from scipy import stats
    >>> round(mechanism.expected_loss(stats.uniform(-1, 2), "absolute"), 4)
    1.9973
    """

    bins: Array
    knots: Array
    starts: Array
    ends: Array
    selection: Selection | None = None
    law: ExactLaw | None = None

    def __post_init__(self) -> None:
        bins = check_bins(self.bins)
        knots = np.array(self.knots, dtype=float)
        if knots.ndim != 1 or len(knots) < 2 or not np.all(np.isfinite(knots)) or np.any(np.diff(knots) <= 0):
            raise DesignError.of(
                "knots", self.knots, "must be at least two finite, strictly increasing numbers"
            )
        shape = (len(knots) - 1, len(bins))
        for name in ("starts", "ends"):
            table = np.array(getattr(self, name), dtype=float)
            if table.shape != shape:
                raise DesignError(
                    f"{name} has shape {table.shape}: must be {shape}, one row a segment, one column a bin"
                )
            if (
                not np.all(np.isfinite(table))
                or np.any(table < -1e-12)
                or np.any(np.abs(table.sum(axis=1) - 1) > 1e-9)
            ):
                raise DesignError(f"{name}: every row must be non-negative and sum to 1")
            table = np.maximum(table, 0.0)
            table.setflags(write=False)
            object.__setattr__(self, name, table)
        knots.setflags(write=False)
        object.__setattr__(self, "bins", bins)
        object.__setattr__(self, "knots", knots)

    # -- constructors ---------------------------------------------------------------------------------

    @classmethod
    def of_selection(
        cls, selection: Selection, input_range: Any, *, law: ExactLaw | None = None
    ) -> Quantizer:
        """Build the quantizer of a `Selection` on an input range."""
        lower, upper = check_range(input_range, selection.bins)
        return cls(selection.bins, *selection.segments((lower, upper)), selection, law)

    @classmethod
    def from_selection(cls, bins: Any, left: Any, right: Any, input_range: Any) -> Quantizer:
        """Build a quantizer from selection probabilities.

        Parameters
        ----------
        bins : array_like, shape (m,)
        left : array_like, shape (m − 1, m − 1), lower triangular
            Row j − 1 holds the probabilities of the left indices 1 … j for x in [B_j, B_{j+1}).
        right : array_like or None
            The same counted from the right end; None mirrors `left`.
        input_range : (float, float)
        """
        return cls.of_selection(
            Selection(check_bins(bins), left, left if right is None else right), input_range
        )

    @classmethod
    def rqm(cls, bins: Any, q: float, input_range: Any) -> Quantizer:
        """Randomized quantization mechanism (Youn et al. 2023): each bin is kept with probability q."""
        array = check_bins(bins)
        return cls.from_selection(array, rqm_family(len(array), q), None, input_range)

    @classmethod
    def erm(cls, bins: Any, gamma: float, input_range: Any) -> Quantizer:
        """Exponential randomized mechanism: bins are drawn by the exponential mechanism with parameter γ."""
        array = check_bins(bins)
        right = erm_family(-array[::-1], gamma)
        return cls.from_selection(array, erm_family(array, gamma), right, input_range)

    @classmethod
    def interpolated(cls, bins: Any, knots: Any, rows: Any, *, law: ExactLaw | None = None) -> Quantizer:
        """Build a continuous quantizer from its rows at the knots, shape (K + 1, m)."""
        table = np.asarray(rows, dtype=float)
        return cls(bins, knots, table[:-1], table[1:], None, law)

    @classmethod
    def of_law(cls, law: ExactLaw) -> Quantizer:
        """Build the quantizer that rounds an exact law."""
        return cls(
            np.array([float(b) for b in law.bins]),
            np.array([float(x) for x in law.knots]),
            *law.tables(),
            None,
            law,
        )

    def with_law(self, law: ExactLaw) -> Quantizer:
        """Attach the exact law that this quantizer rounds."""
        return replace(self, law=law)

    # -- the law --------------------------------------------------------------------------------------

    @property
    def input_range(self) -> tuple[float, float]:
        """Where inputs may be."""
        return float(self.knots[0]), float(self.knots[-1])

    def _checked(self, x: Any, clip: bool) -> Array:
        x = np.asarray(x, dtype=float)
        lower, upper = self.input_range
        if clip and not np.isnan(x).any():
            return np.clip(x, lower, upper)
        inside = (x >= lower) & (x <= upper)
        if not inside.all():
            first = x[~inside].ravel()[0]
            raise DesignError(
                f"x = {first:g}: inputs must be in [{lower:g}, {upper:g}]"
                + ("" if np.isnan(first) else "; or pass clip=True")
            )
        return x

    def probabilities(self, x: Any, *, clip: bool = False) -> Array:
        """Output probabilities p(x, ·); inputs of any shape, the outputs in one more axis of length m.

        Raises
        ------
        DesignError
            An input outside the range (unless `clip`), or NaN.

        Examples
        --------
        >>> Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)).probabilities([-1.0, 0.2]).round(3)
        array([[0.354, 0.5  , 0.083, 0.062],
               [0.179, 0.25 , 0.333, 0.237]])
        """
        x = self._checked(x, clip)
        k = np.clip(np.searchsorted(self.knots, x, side="right") - 1, 0, len(self.knots) - 2)
        t = ((x - self.knots[k]) / (self.knots[k + 1] - self.knots[k]))[..., None]
        return (1 - t) * self.starts[k] + t * self.ends[k]

    def sample(self, x: Any, rng: Any = None, *, clip: bool = False) -> Any:
        """Draw one output for every input: fast, for simulation.

        Uses floating-point numbers and a simulation generator, so it is *not* the certified sampler; deploy
        `sample_exact`.

        Parameters
        ----------
        x : array_like of any shape, or a PyTorch tensor (answered on its own device)
        rng : seed, numpy Generator, or for tensors a torch.Generator
        clip : bool
            Clip inputs to the range instead of refusing them.

        Returns
        -------
        array or tensor of the same shape
        """
        if sampling.is_tensor(x):
            return sampling.sample_tensor(self, x, rng, clip=clip)
        return sampling.sample_array(self, self._checked(x, clip), rng)

    def sample_exact(self, x: Any, *, clip: bool = False) -> Array:
        """Draw from the exact rational law, bit for bit, with the operating system's randomness.

        Raises
        ------
        DesignError
            The mechanism has no exact law (solve with certification, or use ``certified()``).
        """
        if self.law is None:
            raise DesignError(
                "this mechanism has no exact law: take result.mechanism of a certified solve, or .certified()"
            )
        return self._exact_sampler.draw(self._checked(x, clip))

    @cached_property
    def _exact_sampler(self) -> sampling.ExactSampler:
        """Keeps the integer weights of the rows it has met: later draws only look them up."""
        assert self.law is not None
        return sampling.ExactSampler(self.law)

    def certified(self) -> Quantizer:
        """Return the same mechanism with an exact rational law behind it (selection mechanisms only).

        Its probabilities move by less than 2^-70; its privacy loss is then exact.
        """
        if self.law is not None:
            return self
        if self.selection is None:
            raise DesignError(
                "only selection mechanisms can be made exact as they are; solve an OptimalQuantizer instead"
            )
        return self.with_law(self.selection.exact(self.input_range))

    # -- privacy --------------------------------------------------------------------------------------

    def extremes(self) -> tuple[Array, Array]:
        """Smallest and largest probability of each output over the input range, each (m,)."""
        both = np.concatenate([self.starts, self.ends])
        return both.min(axis=0), both.max(axis=0)

    def privacy_loss(self) -> float:
        """Exact ε of local differential privacy, rounded up; ∞ when an output is impossible for some inputs only.

        From the exact rational law where there is one. From floats otherwise, with the rounding errors of the
        tables (at most m + 8 units in the last place each, all sums being of positive terms) added.
        """
        if self.law is not None:
            ratio = self.law.ratio()
            return math.inf if ratio is None else log_upper(ratio)
        low, high = self.extremes()
        reachable = high > 0
        if np.any(low[reachable] == 0):
            return math.inf
        slack = 2 * (len(self.bins) + 8) * np.finfo(float).eps
        return float(np.log(high[reachable] / low[reachable]).max() + slack)

    def metric_loss(self) -> float:
        """Smallest ε with p(x, i) ≤ e^{ε|x − x'|} p(x', i): ∞ if any probability jumps or vanishes.

        On a segment p is affine, so |(log p)'| is largest where p is smallest:
        |p(end) − p(start)| / (width · min(p(start), p(end))).
        """
        if not np.allclose(self.ends[:-1], self.starts[1:], rtol=1e-13, atol=1e-15):
            return math.inf
        low = np.minimum(self.starts, self.ends)
        change = np.abs(self.ends - self.starts)
        if np.any((low == 0) & (change > 0)):
            return math.inf
        width = np.diff(self.knots)[:, None]
        slope = np.divide(change, width * low, out=np.zeros_like(low), where=low > 0)
        return float(slope.max() * (1 + 1e-14))

    # -- error ----------------------------------------------------------------------------------------

    def bias(self, x: Any, *, clip: bool = False) -> Array:
        """E M(x) − x, element-wise."""
        x = self._checked(x, clip)
        return self.probabilities(x) @ self.bins - x

    def loss_at(self, x: Any, loss: Any = "absolute") -> Array:
        """E ℓ(M(x) − x), element-wise."""
        x = self._checked(x, False)
        return np.sum(self.probabilities(x) * Loss.of(loss)(self.bins - x[..., None]), axis=-1)

    def expected_loss(self, prior: Any, loss: Any = "absolute") -> float:
        """E ℓ(M(X) − X) under a prior, exact: a sum over cells of partial moments of order 0–2.

        A callable loss is integrated adaptively to 1e-12.

        Parameters
        ----------
        prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
        loss : "absolute", "squared", dict of weights, or callable
        """
        return error_curve.mean(self, Prior.of(prior, self.input_range), Loss.of(loss))

    def worst_case_loss(self, loss: Any = "absolute") -> tuple[float, float]:
        """Return sup over inputs of E ℓ(M(x) − x), and an input at which it is reached (as a limit)."""
        return error_curve.largest(self, Loss.of(loss))

    # -- pictures -------------------------------------------------------------------------------------

    def describe(self, x: Any, *, width: int = 40) -> str:
        """Draw the output distribution at the inputs `x` as text bars.

        Examples
        --------
        >>> print(Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)).describe(0.0, width=8))
        x = 0
              -2  0.2083 ######
              -1  0.2917 ########
               1  0.2917 ########
               2  0.2083 ######
        """
        return pictures.bars(self, x, width=width)

    def plot(self, x: Any = (0.0,), **options: Any) -> Figure:
        """Draw the output distribution at the inputs `x`, a panel each (Figure 2 of the OPTM paper)."""
        return pictures.panels(self, x, **options)
