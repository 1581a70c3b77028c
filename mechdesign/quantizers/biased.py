r"""The selection family with bias: the exponential mechanism chooses between the two bins drawn.

With the pair (l, r) drawn as in the unbiased family (`mechanism`), the output is :math:`B_l` with probability

.. math:: \sigma(\beta (B_l + B_r - 2x)), \qquad \sigma(t) = 1/(1 + e^{-t}),

that is, with weights :math:`e^{-\beta |B - x|}`; β = 0 is a fair coin, β → ∞ takes the nearer bin. Each probability
p(x, i) is a positive combination of logistic functions that all fall (i left of x) or all rise (i right of x) in x, so on
every interval between bins it is monotone, with extremes at the interval's ends: the privacy loss is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from scipy import special

from mechdesign import checks
from mechdesign.evidence.exact import exp_lower, exp_upper, log_upper
from mechdesign.evidence.page import Saved
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.sampling import IntegerRows, bernoulli
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers import table as tables
from mechdesign.quantizers.mechanism import SelectionFamilies
from mechdesign.typing import Array, Indices, Numbers, Randomness


@serializable("biased-quantizer", eq=False)
class BiasedQuantizer(checks.Checked, Saved):
    """A selection mechanism that rounds by the exponential mechanism.

    Parameters
    ----------
    selection : SelectionFamilies
    beta : float
        Sharpness of the choice, per unit of distance, at least 0.
    input_range : (float, float)

    Examples
    --------
    >>> from mechdesign.quantizers.mechanism import rqm_family
    >>> family = rqm_family(4, 0.3)
    >>> mechanism = BiasedQuantizer(SelectionFamilies([-2, -0.5, 0.5, 2], family, family), 0.2, (-1, 1))
    >>> mechanism.bias([-1.0, 0.0, 1.0]).round(3)
    array([ 0.272,  0.   , -0.272])
    """

    selection: SelectionFamilies = checks.field(SelectionFamilies)
    beta: float = checks.field(check=checks.non_negative)
    input_range: Any = checks.field()

    def _post_check(self) -> None:
        checks.settle(self, input_range=tables.check_range(self.input_range, self.selection.bins))

    @property
    def bins(self) -> Array:
        """Output values."""
        return self.selection.bins

    def _on_interval(self, x: Array, j: int) -> Array:
        """Return p(x, ·) for inputs (n,) on interval j (1-based); shape (n, m)."""
        bins, m = self.bins, len(self.bins)
        ql, qr = self.selection.left[j - 1, :j], self.selection.right[m - j - 1, : m - j][::-1]
        middle = bins[:j, None] + bins[None, j:]
        down = special.expit(self.beta * (middle[None] - 2 * x[:, None, None]))
        pair = ql[:, None] * qr[None, :]
        p = np.empty((len(x), m))
        p[:, :j] = np.sum(pair * down, axis=2)
        p[:, j:] = np.sum(pair * (1 - down), axis=1)
        return p

    @cached_property
    def _knots(self) -> Array:
        """Ends of the intervals between bins within the input range."""
        return tables.cell_edges(self.bins, np.array(self.input_range))

    def _parts(self, points: list[Array]) -> Iterator[Array]:
        """Yield the probabilities at given points of each interval, as limits from inside it."""
        first = np.searchsorted(self.bins, self._knots[:-1], side="right")
        for x, j in zip(points, np.minimum(first, len(self.bins) - 1).tolist()):
            yield self._on_interval(x, j)

    def probabilities(self, x: Numbers, *, clip: bool = False) -> Array:
        """Return output probabilities for inputs of any shape, with outputs in a further axis."""
        x = tables.inside(x, self.input_range, clip=clip)
        flat, knots = x.ravel(), self._knots
        which = np.clip(np.searchsorted(knots, flat, side="right") - 1, 0, len(knots) - 2)
        members = [np.flatnonzero(which == k) for k in range(len(knots) - 1)]
        out = np.empty((len(flat), len(self.bins)))
        for here, rows in zip(members, self._parts([flat[n] for n in members])):
            out[here] = rows
        return out.reshape(*x.shape, len(self.bins))

    def extremes(self) -> tuple[Array, Array]:
        """Return the smallest and largest probability of each output over the input range, each (m,)."""
        ends = np.concatenate([*self._parts([np.array(pair) for pair in pairwise(self._knots)])])
        return ends.min(axis=0), ends.max(axis=0)

    def privacy_loss(self) -> float:
        """Return the exact ε, rounded up by the rounding error of its sums."""
        terms = len(self.bins) ** 2 + 16
        slack = 4 * terms * np.finfo(float).eps * (1 + 4 * self.beta * np.abs(self.bins).max())
        return tables.loss_from_floats(*self.extremes(), slack)

    def proved_loss(self) -> float:
        r"""Return an upper bound of ε proved in integers, with every logistic function enclosed through rational exponentials.

        With :math:`u_i = e^{-\beta B_i}` and :math:`v = e^{2 \beta x}`, the lower bin of a pair has probability
        :math:`1/(1 + u_l u_r v)`; each factor is enclosed to 240 bits.
        """
        law, beta = self.selection.exact(self.input_range), Fraction(self.beta)
        unit = 1 << 256

        def enclosed(power: Fraction) -> tuple[int, int]:
            return math.floor(exp_lower(power) * unit), math.ceil(exp_upper(power) * unit)

        factors = [enclosed(-beta * b) for b in law.bins]
        m, low, high = len(factors), [unit**4] * len(factors), [0] * len(factors)
        for knot, following in pairwise(law.knots):
            j = min(sum(b <= knot for b in law.bins), m - 1)
            left, right = law.left[j - 1], law.right[m - j - 1][::-1]
            for x in (knot, following):
                p = [[0] * m, [0] * m]
                for end, v in enumerate(reversed(enclosed(2 * beta * x))):
                    for l, r in product(range(j), range(j, m)):
                        pair = left[l] * right[r - j]
                        # A larger power lowers the lower bin's share, so bounds swap.
                        odds = factors[l][1 - end] * factors[r][1 - end] * v
                        share = (unit**4 // (unit**3 + odds)) + end
                        p[end][l] += pair * share
                        p[1 - end][r] += pair * (unit - share)
                weight = (unit << 200) // (sum(left) * sum(right))
                low = [min(a, b * weight) for a, b in zip(low, p[0])]
                high = [max(a, b * (weight + 1)) for a, b in zip(high, p[1])]
        pairs = [(a, b) for a, b in zip(low, high) if b]
        if any(a <= 0 for a, _ in pairs):
            return math.inf
        return log_upper(max(Fraction(b, a) for a, b in pairs))

    def bias(self, x: Numbers) -> Array:
        """Return E M(x) − x."""
        means: Array = self.probabilities(x) @ self.bins
        return means - checks.finite("x", x)

    def max_bias(self, points: int = 2001) -> float:
        """Return the largest |bias| over a fine grid and both sides of every bin."""
        count = max(3, checks.integer("points", points, 1, 10**6) // (len(self._knots) - 1))
        inputs = [np.linspace(a, b, count) for a, b in pairwise(self._knots)]
        return float(max(np.abs(p @ self.bins - x).max() for x, p in zip(inputs, self._parts(inputs))))

    def expected_loss(self, prior: object, loss: object = "absolute") -> float:
        """Return E ℓ(M(X) − X), by adaptive quadrature to 1e-12 on every interval."""
        chosen = Loss.of(loss)
        law = Prior.of(prior, self.input_range)

        def integrand(x: Array) -> Array:
            x = np.clip(x, *self.input_range)
            losses: Array = np.sum(self.probabilities(x) * chosen(self.bins - x[:, None]), axis=1)
            return losses[:, None]

        return float(law.integrals(integrand, self._knots).sum())

    def errors(self, prior: object) -> Accuracy:
        """Return standard deviation, mean absolute error and 95% half-width under a prior."""
        return tables.accuracy(self, prior)

    def sample(self, x: Numbers, *, rng: Randomness = None, clip: bool = False) -> Array:
        """Draw one output for every input, for simulation."""
        cumulative = np.cumsum(self.probabilities(x, clip=clip), axis=-1)
        u = checks.generator(rng).random(np.shape(x))[..., None]
        found: Indices = np.sum(u >= cumulative, axis=-1)
        return self.bins.take(np.minimum(found, len(self.bins) - 1))

    @cached_property
    def _exact_rows(self) -> tuple[IntegerRows, IntegerRows]:
        law = self.selection.exact(self.input_range)
        return IntegerRows(law.left.__getitem__, len(law.left)), IntegerRows(
            law.right.__getitem__, len(law.right)
        )

    def release(self, x: Numbers, *, clip: bool = False) -> Array:
        """Draw with integers and the operating system's randomness, for deployment.

        The pair has the exact weights of the selection; the logistic function is rounded at 240 bits, within the
        enclosures of `proved_loss`.

        Raises
        ------
        DataError
            An input outside the range without `clip`, one that is no number, or beyond 2⁵³ one that no double holds. The
            guarantee does not cover that refusal.
        """
        values = tables.inside(x, self.input_range, clip=clip)
        flat, m = values.ravel(), len(self.bins)
        beta, (left, right) = Fraction(self.beta), self._exact_rows
        interval = np.clip(np.searchsorted(self.bins, flat, side="right"), 1, m - 1)
        low = self.bins[left.draw(interval - 1)]
        high = self.bins[m - 1 - right.draw(m - 1 - interval)]

        def exact(i: int) -> Fraction:
            power = beta * (2 * Fraction(flat[i]) - Fraction(low[i]) - Fraction(high[i]))
            return 1 / (1 + exp_upper(max(min(power, Fraction(700)), Fraction(-700))))

        error = 8 * np.finfo(float).eps * (1 + self.beta * (np.abs(low) + np.abs(high) + 2 * np.abs(flat)))
        lower = bernoulli(special.expit(self.beta * (low + high - 2 * flat)), error, exact)
        return np.where(lower, low, high).reshape(values.shape)
