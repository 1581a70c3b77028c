r"""User-level metric privacy: guarantees for whole datasets, and conversions between them.

A user holds a multiset D of items of a metric space; datasets are compared by the earth mover's distance of their
normalised histograms. α is privacy per unit of distance, in the space's own unit.

=====================  ================================================================================
`ItemPrivacy`          one item, :math:`P[A(x) = y] \le e^{\alpha d(x, x')} P[A(x') = y]`
`EMDPrivacy`           a dataset, :math:`P[M(D) \in S] \le e^{\alpha\,\mathrm{EMD}(D, D')} P[M(D') \in S] + \delta`
`DiscreteEMDPrivacy`   the same with ε = αr for every pair with EMD ≤ r, and group privacy beyond
=====================  ================================================================================

*Group privacy.* If M(D) and M(D′), and M(D′) and M(D″), are (ε, δ)-indistinguishable, then
:math:`P[M(D) \in S] \le e^{\varepsilon}(e^{\varepsilon} P[M(D'') \in S] + \delta) + \delta`; by induction k steps give
:math:`(k\varepsilon, \delta(1 + e^{\varepsilon} + \dots + e^{(k-1)\varepsilon}))`. A pair at EMD t is joined by
:math:`k = \lceil t/r \rceil` steps of at most r: with the optimal plan π, histograms on the way from p to q that have
moved j/k of every mass are t/k apart. (They are histograms of multisets only if sizes may differ;
that is why the discrete definition is for unbounded data.)

Source: Imola, Roy Chowdhury and Chaudhuri 2024, Definitions 3.1, 3.2, 5.1, 5.2 and Fact 5.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.problem import checks
from mechdesign.problem.checks import Checked, field
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Numbers

MODELS = ("local", "central")
SIZES = ("bounded", "unbounded")


def checked_users(users: object, model: str) -> int:
    """Return the number of users of a release, n in the central model and 1 locally, or raise DesignError."""
    found = checks.integer("users", users, 1)
    if checks.one_of("model", model, MODELS) == "local" and found != 1:
        raise DesignError.of("users", users, "belongs to the central model; locally each user is alone")
    return found


def _times(alpha: float, distance: float) -> float:
    """Return the product, rounded up."""
    return round_up(Fraction(alpha) * Fraction(distance))


def group_privacy(epsilon: float, delta: float, steps: int) -> tuple[float, float]:
    r"""Return (kε, δ(e^{kε} − 1)/(e^ε − 1)) for k = `steps` steps of (ε, δ) each.

    Examples
    --------
    >>> epsilon, delta = group_privacy(0.5, 1e-6, 3)
    >>> print(f"{epsilon:.1f} {delta:.4e}")
    1.5 5.3670e-06
    """
    epsilon = checks.positive("epsilon", epsilon, side=checks.DOWN)
    delta = checks.probability("delta", delta, below_one=True, side=checks.DOWN)
    total = _times(epsilon, checks.integer("steps", steps, 1, 1 << 53))
    if delta == 0:
        return total, 0.0
    growth = math.expm1(total) / math.expm1(epsilon) if total < 700 else math.inf
    return total, delta * growth * (1 + 1e-14)


def alpha_from_semantics(epsilon: Numbers, *, fraction: Numbers, distance: Numbers) -> float:
    r"""Return α from a statement: "a fraction ρ of the data moved by a distance t is protected with ε₀".

    Such a change has EMD at most ρt, so α = ε₀/(ρt). Several statements at once (arrays) take the smallest α.

    Parameters
    ----------
    epsilon : float or array
        ε₀ > 0.
    fraction : float or array
        ρ in (0, 1].
    distance : float or array
        t > 0, in the unit of the space.

    Examples
    --------
    One day of thirty within 20 km, and everything within 1 km, both with ε₀ = 1:

    >>> alpha_from_semantics(1.0, fraction=[1 / 30, 1], distance=[20, 1])
    1.0
    """
    given = {"epsilon": epsilon, "fraction": fraction, "distance": distance}
    held = {name: checks.array(name, value, ndim=None) for name, value in given.items()}
    for name, values in held.items():
        if (values <= 0).any():
            raise DesignError.of(name, values.tolist(), "must be positive")
    if (held["fraction"] > 1).any():
        raise DesignError.of("fraction", fraction, "must be at most 1, the whole of a user's data")
    try:
        return checks.positive("alpha", np.min(held["epsilon"] / (held["fraction"] * held["distance"])))
    except ValueError:
        raise DesignError.of("epsilon, fraction, distance", given, "do not fit together") from None


@serializable("item-privacy")
@dataclass(frozen=True)
class ItemPrivacy(Checked):
    """Item-level α-d-DP of a channel: one item against another.

    Parameters
    ----------
    alpha : float
        Privacy per unit of distance.

    Examples
    --------
    >>> ItemPrivacy(0.5).epsilon(3.0)
    1.5
    >>> ItemPrivacy(0.5).composed(10).alpha
    5.0
    """

    alpha: float = field(check=checks.positive, side=checks.DOWN)

    def epsilon(self, distance: float) -> float:
        """Return the largest loss between two items at this distance."""
        return _times(self.alpha, checks.non_negative("distance", distance))

    def composed(self, items: int) -> EMDPrivacy:
        """Return the guarantee of m items released one by one: EMD t moves them by mt in all, so α grows to mα."""
        return EMDPrivacy(_times(self.alpha, checks.integer("items", items, 1, 1 << 53)))


@serializable("emd-privacy")
@dataclass(frozen=True)
class EMDPrivacy(Checked):
    r"""(α, δ)-EMD-DP of one user's dataset.

    Parameters
    ----------
    alpha : float
        Privacy per unit of earth mover's distance.
    delta : float
    model : {"local", "central"}
        Local: the release of one user's dataset. Central: n users' datasets, one of which changes.
    sizes : {"bounded", "unbounded"}
        Bounded: pairs of equal size only, sizes are public. Unbounded: all pairs.

    Examples
    --------
    >>> privacy = EMDPrivacy(2.0, 1e-6)
    >>> privacy.epsilon(0.25)
    0.5
    >>> privacy.user_level(MetricSpace.line([0.0, 3.0]))
    ApproximateDP(epsilon=6.0, delta=1e-06)
    """

    alpha: float = field(check=checks.positive, side=checks.DOWN)
    delta: float = field(check=checks.probability, below_one=True, side=checks.DOWN, default=0.0)
    model: str = field(check=checks.one_of, allowed=MODELS, default="local")
    sizes: str = field(check=checks.one_of, allowed=SIZES, default="bounded")

    def __str__(self) -> str:
        return f"α = {self.alpha:g} per unit of earth mover's distance, δ = {self.delta:g}"

    def epsilon(self, emd: float) -> float:
        """Return ε for two datasets at this earth mover's distance; δ is the same for all."""
        return _times(self.alpha, checks.non_negative("emd", emd))

    def user_level(self, space: MetricSpace) -> ApproximateDP:
        """Return the implied user-level DP: no two datasets are farther apart than the diameter, so ε = α · diameter."""
        return ApproximateDP(self.epsilon(checks.instance("space", space, MetricSpace).diameter), self.delta)

    def discrete(self, radius: float) -> DiscreteEMDPrivacy:
        """Return the implied discrete guarantee: pairs with EMD ≤ r have ε ≤ αr."""
        return DiscreteEMDPrivacy(self.alpha, radius, self.delta, self.model, self.sizes)


@serializable("discrete-emd-privacy")
@dataclass(frozen=True)
class DiscreteEMDPrivacy(Checked):
    r"""Discrete (α, δ, r)-EMD-DP: every pair with EMD ≤ r has (αr, δ); farther pairs have group privacy.

    Parameters
    ----------
    alpha : float
        Privacy per unit of distance.
    radius : float
        r > 0, the resolution, in the unit of distance.
    delta : float
    model : {"local", "central"}
    sizes : {"unbounded", "bounded"}
        Bounded: pairs of equal size only. Between two datasets of m items there need not be others of m items in
        steps of at most r, so nothing follows beyond r.

    Examples
    --------
    >>> DiscreteEMDPrivacy(2.0, 0.1, 1e-6).at(0.05)
    (0.2, 1e-06)
    """

    alpha: float = field(check=checks.positive, side=checks.DOWN)
    radius: float = field(check=checks.positive)
    delta: float = field(check=checks.probability, below_one=True, side=checks.DOWN, default=0.0)
    model: str = field(check=checks.one_of, allowed=MODELS, default="local")
    sizes: str = field(check=checks.one_of, allowed=SIZES, default="unbounded")

    def at(self, emd: float) -> tuple[float, float]:
        """Return (ε, δ) for two datasets at this earth mover's distance: k = ⌈EMD/r⌉ steps; δ may exceed 1 (void).

        A distance within 10⁻¹² of a whole number of steps counts as that: it is a rounded sum itself.
        """
        ratio = checks.non_negative("emd", emd) / self.radius
        if not math.isfinite(ratio):
            raise DesignError.of("emd", emd, "is too many steps of the radius")
        steps = max(1, math.ceil(ratio * (1 - 1e-12)))  # whole up to rounding counts as whole
        epsilon = _times(self.alpha, self.radius)
        if steps > 1 and self.sizes == "bounded":
            beyond = f"lies beyond radius = {self.radius}, where a bounded guarantee says nothing; ask the mechanism"
            raise DesignError.of("emd", emd, beyond)
        return (epsilon, self.delta) if steps == 1 else group_privacy(epsilon, self.delta, steps)

    def user_level(self, space: MetricSpace) -> ApproximateDP:
        """Return the implied user-level DP, the guarantee at the diameter.

        Raises
        ------
        DesignError
            Group privacy has driven δ to 1: nothing is implied.
        """
        epsilon, delta = self.at(checks.instance("space", space, MetricSpace).diameter)
        if delta >= 1:
            grown = f"group privacy over the diameter makes it {delta:.3g}; lower delta or alpha"
            raise DesignError.of("delta", self.delta, grown)
        return ApproximateDP(epsilon, delta)
