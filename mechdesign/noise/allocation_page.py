"""Print and draw noise allocations, compare them with the usual choices of scales, and measure how unequal a sensitivity profile is.

The more dispersed the profile, the more non-identical noise saves (a Schur-convexity argument: Muthukrishnan and
Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*, Theorem 9).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import pandas as pd

from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.noise.scales_problem import AllocationProof, ScalesDesign
from mechdesign.noise.scales_solving import largest_spent
from mechdesign.noise.separable import changes_of, changes_within, power, slack
from mechdesign.noise.vector_noise import LEVELS, IndependentNoise, MixedNoise, delta_at
from mechdesign.plotting import COLOURS, figure, legend_above, sized
from mechdesign.problem.checks import array, doubles, instance, number, one_of, rounded_up
from mechdesign.problem.privacy import Pointwise, PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.words import Description
from mechdesign.typing import Array, Indices, Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_profile(profile: Numbers, name: str = "sensitivities") -> Array:
    """Return the profile as a vector, or say what is wrong with it."""
    values = doubles(name, profile, "must be a vector of numbers")
    if values.ndim != 1 or values.size == 0:
        raise DesignError.of(name, profile, "must be a vector with at least one coordinate")
    values = rounded_up(values, profile)
    # One pass each: minima and maxima carry NaN and infinities along.
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high < np.inf):
        bad = int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])
        raise DesignError.of(
            name, profile, f"must be non-negative and finite; coordinate {bad} is {values[bad]}"
        )
    if high == 0:
        raise DesignError.of(
            name, profile, "is zero everywhere: the query needs no noise at all, release it as it is"
        )
    return values


def disparity(profile: Numbers) -> float:
    r"""Return :math:`\nu = \|\lambda\|_1 / (K \Delta_\infty)`, in [1/K, 1]: 1 for equal sensitivities.

    Examples
    --------
    >>> round(disparity([1, 1, 2]), 6)
    0.666667
    """
    values = check_profile(profile)
    return float(values.sum() / (len(values) * values.max()))


def gini(profile: Numbers) -> float:
    r"""Return the Gini coefficient :math:`\sum_{ij} |\lambda_i - \lambda_j| / (2K\|\lambda\|_1)`, in O(K log K).

    Examples
    --------
    >>> gini([0, 0, 0, 1])
    0.75
    """
    values = np.sort(check_profile(profile))
    k = len(values)
    ranks = 2 * np.arange(1, k + 1) - k - 1
    return float((ranks * values).sum() / (k * values.sum()))


def majorizes(profile: Numbers, other: Numbers) -> bool:
    r"""Whether `profile` majorizes `other`: equal sums, and every sum of its k largest values is at least as large.

    Partial sums are exact (rational); the totals may differ, and a partial sum fall short, by 1e-12 of the total.

    Examples
    --------
    >>> majorizes([3, 1, 0], [2, 1, 1]), majorizes([2, 1, 1], [3, 1, 0])
    (True, False)
    """
    a, b = (
        [Fraction(x) for x in sorted(check_profile(values, name).tolist(), reverse=True)]
        for values, name in ((profile, "profile"), (other, "other"))
    )
    if len(a) != len(b):
        raise DesignError.of("other", other, f"must have {len(a)} coordinates, as the profile has")
    ahead = list(accumulate(x - y for x, y in zip(a, b)))
    slack = Fraction(1, 10**12) * max(sum(a), sum(b))
    return abs(ahead[-1]) <= slack and min(ahead) >= -slack


class LayerProfile(np.ndarray):
    """The profile of clipped layers, right for one scale in each of its groups only: an allocation keeps that."""

    groups: tuple[Indices, ...] | None = None

    def __array_finalize__(self, source: Array | None) -> None:
        whole = source is not None and self.shape == source.shape
        self.groups = getattr(source, "groups", None) if whole else None


def layer_profile(
    clips: Numbers, sizes: Numbers, *, norm: float = 2.0, noise: str = "gaussian"
) -> tuple[Array, tuple[Indices, ...]]:
    r"""Return the profile and the groups of a query made of clipped layers.

    A layer with :math:`K_m` coordinates clipped to :math:`C_m` in ℓ_p takes of the budget the worst
    :math:`\sum |d_i|^s` over :math:`\lVert d \rVert_p \le C_m`, s = 2 for Gaussian and 1 for Laplace noise: with a
    common scale that is the budget of :math:`\lambda = C_m / K_m^{1/\max(p, s)}` in each coordinate. (The exponent 1/p,
    which is printed, overlooks for p < s a change of one coordinate alone.)

    Parameters
    ----------
    clips : array_like, shape (M,)
    sizes : array_like of int, shape (M,)
    norm : float
        p ≥ 1.
    noise : {"gaussian", "laplace"}
        What the profile is for. For Laplace noise it is right under pure privacy only: with δ > 0 a flat change is not
        the worst one.

    Returns
    -------
    profile : ndarray, shape (ΣK_m,)
    groups : tuple of ndarray of int
        The coordinates of each layer. A common scale in a layer is required: `NoiseAllocation` takes these groups by itself,
        and refuses others that part a layer.

    Examples
    --------
    >>> profile, groups = layer_profile([1.0, 2.0], [4, 1])
    >>> profile
    LayerProfile([0.5, 0.5, 0.5, 0.5, 2. ])
    """
    c, counts = check_profile(clips, "clips"), array("sizes", sizes)
    if (
        counts.shape != c.shape
        or np.any(counts != np.round(counts))
        or counts.min() < 1
        or counts.sum() > 1e9
    ):
        raise DesignError.of("sizes", sizes, "must give a positive number of coordinates per clip")
    spend = {"gaussian": 2.0, "laplace": 1.0}[one_of("noise", noise, ("gaussian", "laplace"))]
    if isinstance(norm, np.ndarray) or (norm != math.inf and number("norm", norm) < 1):
        raise DesignError.of("norm", norm, "must be at least 1")
    k = counts.astype(np.int64)
    profile = np.repeat(c / counts ** (1 / max(norm, spend)), k).view(LayerProfile)
    profile.groups = tuple(np.split(np.arange(k.sum()), np.cumsum(k)[:-1]))
    return profile, profile.groups


def profile_of(sensitivity: Sensitivity, noise: str, dimension: int | None = None) -> Array:
    """Return the profile for changes that keep several bounds.

    Bounds of single coordinates are the profile, whatever else is stated (`several` has the rest). Under others all coordinates alike share one scale, by symmetry, and the profile is
    what consumes as much of the budget as the worst change does: the largest ℓ₂ norm (Gaussian) or ℓ₁ norm (Laplace, pure
    privacy and what follows from it) spread evenly.

    Examples
    --------
    >>> from mechdesign.problem.sensitivity import Sensitivity
    >>> profile_of(Sensitivity(each=[1, 2, 5], linf=3), "gaussian")
    array([1., 2., 3.])
    >>> profile_of(Sensitivity(l2=2.0), "gaussian", 4).round(12).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    s = sensitivity
    plain = (s.l0, s.l1, s.l2) == (None, None, None)
    if s.each is not None:
        if dimension is not None:
            s.check(dimension)
        if not plain and noise not in CLOSED:
            raise DesignError.of("noise", noise, "takes bounds of single coordinates alone: each=, or linf=")
        return s.widths(len(s.each))
    if dimension is None:
        raise DesignError.of(
            "sensitivities",
            str(s),
            "does not state how many coordinates there are: use NoiseAllocation.of_sensitivity, or each=",
        )
    if plain:
        return np.full(dimension, s.linf)
    if noise not in CLOSED:
        raise DesignError.of("noise", noise, "takes bounds of single coordinates alone: each=, or linf=")
    gaussian = noise == "gaussian"
    total = (
        s.largest_l2(dimension) / math.sqrt(dimension) if gaussian else s.largest_l1(dimension) / dimension
    )
    profile = np.full(dimension, total * (1 + 1e-15)).view(LayerProfile)
    profile.groups = (np.arange(dimension),)
    return profile


def check_bounds(bounds: Sensitivity, profile: Array, noise: str) -> bool:
    """Whether several bounds say more than their profile, which must be this one."""
    each = instance("bounds", bounds, Sensitivity).each
    if each is None or len(each) != len(profile):
        raise DesignError.of("bounds", str(bounds), f"must have each= for {len(profile)} coordinates")
    if not np.array_equal(profile_of(bounds, noise), profile):
        raise DesignError.of("sensitivities", profile, "must be what the bounds say of each")
    return bool(changes_of(bounds, 2 if noise == "gaussian" else 1).rows())


def check_groups(
    groups: Iterable[Numbers] | None, size: int, lower: Array | None = None, upper: Array | None = None
) -> tuple[Indices, ...] | None:
    """Return a partition of `size` coordinates as vectors of indices, or say what is wrong with it.

    Where there are limits on the scales, those of a group's members leave it one in common.
    """
    if groups is None:
        return None
    try:
        given = [np.asarray(g).ravel() for g in groups]
        if any(g.size and g.dtype.kind not in "iu" for g in given):
            raise TypeError
        found = tuple(g.astype(np.int64) for g in given)
        counts = np.bincount(np.concatenate(found), minlength=size)
    except (TypeError, ValueError, OverflowError):
        raise DesignError.of("groups", groups, "must be lists of coordinate indices") from None
    if not all(map(len, found)):
        raise DesignError.of("groups", groups, "must not hold an empty group")
    if len(counts) > size:
        raise DesignError.of("groups", len(counts) - 1, f"is not a coordinate; there are {size}")
    if np.any(counts != 1):
        i = int(np.flatnonzero(counts != 1)[0])
        fault = "is in no group" if counts[i] == 0 else f"is in {counts[i]} groups"
        raise DesignError.of("groups", groups, f"must partition the coordinates; coordinate {i} {fault}")
    if lower is not None and upper is not None:
        for g in found:
            if lower[g].max() > upper[g].min():
                raise DesignError.of("groups", g.tolist(), "its members' limits exclude one another")
    return found


CLOSED = "gaussian", "laplace"
"""Noise whose scales are a closed form or a convex program."""


def _counted(kinds: tuple[str, ...]) -> str:
    return ", ".join(f"{kind} on {kinds.count(kind)}" for kind in sorted({*kinds}, reverse=True))


_BARS = 60  # coordinates that are drawn one by one; more are sorted by sensitivity


class AllocationPage(ScalesDesign):
    """Prints, pages and pictures of allocations of scales, or of laws that are searched."""

    asks: ClassVar[str] = "numbers"
    noise: str
    sensitivities: Any
    privacy: Any
    bounds: Sensitivity | None
    cost_of: Callable[[Array], float]
    of_one_type: Callable[[str], ScalesDesign]

    @property
    def searched(self) -> bool:
        """Whether a law is searched for each coordinate, under exact composition."""
        return self.noise not in CLOSED

    @property
    @abstractmethod
    def budget(self) -> float:
        """What may be consumed."""

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Bound the trade-off by the Gaussian budget or the composed losses; by the requirement if these are too many or keep several bounds."""
        law = result.mechanism
        if self.noise == "gaussian":
            return gaussian_tradeoff(self.budget, at)
        if isinstance(law, IndependentNoise):
            law = MixedNoise(law.scales, np.ones(len(law.scales), dtype=bool), self.sensitivities)
        asked = super().tradeoff(result, at)
        if self.bounds is not None or not isinstance(law, MixedNoise) or len(law.terms()) > LEVELS:
            return asked
        terms, small = law.terms(), law.small
        found = TradeOff.of_profile(lambda e: delta_at(terms, small, e)[0], at)
        return TradeOff((*found.points, *asked.points))

    def spent(self, result: Result) -> Array:
        r"""Share of the privacy budget that each coordinate consumes: :math:`\lambda_i^2/(\sigma_i\mu_0)^2` or
        :math:`\lambda_i/(\beta_i\varepsilon)`; the shares sum to at most 1. Under several bounds they are those of the worst mix
        of changes, which consumes all of the budget: in proportion to the coordinates' losses."""
        lam, scales = self.sensitivities, result.mechanism.scales
        if self.bounds is None:
            ratio = np.divide(lam, scales, out=np.zeros(len(lam)), where=lam > 0)
            return power(ratio, self.asked[0].spend) / self.budget
        weights = 1.0 if self.weights is None else self.weights
        moved = weights * power(scales / scales.max(), float(self.loss)) * (lam > 0)
        return np.asarray(moved / moved.sum() * (1 - self._slack(result) / self.budget))

    def _slack(self, result: Result) -> float:
        """Return what is left of the budget, by the result's own proof if it has one."""
        scales, proof = result.mechanism.scales, next(iter(result.proofs), None)
        if proof is None:
            changes = changes_within(self.asked[0])
            prices = None if changes is None else largest_spent(changes, scales)[1]
        else:
            prices = instance("proofs", proof, AllocationProof).price(0)
        return slack(self.asked[0], scales, prices)

    def _used(self, result: Result) -> float:
        """Upper bound on δ of the exact composition at the design's ε; for several points, on the largest share of a δ."""
        used: float = result.mechanism.composed(instance("privacy", self.privacy, *get_args(Pointwise)))[0]
        return used

    @property
    def _measure(self) -> str:
        """What `_used` is, with the words for "at most"."""
        if isinstance(self.privacy, PureDP):
            return "privacy loss at most"
        return "largest share of a δ at most" if isinstance(self.privacy, TradeOff) else "δ at most"

    def compare(self, result: Result, *, overall: float | None = None) -> pd.DataFrame:
        """Compare scales with identical noise and with scale-perturb-rescale; a mix of types has `alternatives` only.

        Parameters
        ----------
        result : Result
            Of this design.
        overall : float, optional
            The ℓ₂ (Gaussian) or ℓ₁ (Laplace) sensitivity of the whole query, for the i.i.d. row. Leaving it
            out states that the coordinates are decoupled: it is then the norm of the profile.

        Returns
        -------
        DataFrame
            Rows "i.i.d.", "scale-perturb-rescale", "this allocation"; columns mechanism, scales (arrays of shape
            (K,)), MSE, dB (MSE reduction over i.i.d.), loss (the design's own), loss dB.
        """
        if self.searched:
            allowed = "has no row here: of single scales alone, see alternatives() for a mix of types"
            raise DesignError.of("noise", self.noise, allowed)
        lam, m, budget = self.sensitivities, self.asked[0].spend, self.budget
        norm, rescaled = float(np.linalg.norm(lam, m)), float(len(lam))
        if (changes := changes_within(self.asked[0])) is not None:
            norm, rescaled = (largest_spent(changes, s)[0] for s in (np.ones(len(lam)), lam))
            norm **= 1 / m
        allowed = f"must be positive and at most {norm:g}, the norm of the profile or of the largest change"
        if overall is not None and not 0 < number("overall", overall, allowed) <= norm * (1 + 1e-12):
            raise DesignError.of("overall", overall, allowed)
        level = (norm if overall is None else float(overall)) / budget ** (1 / m)
        laws = {
            "i.i.d.": IndependentNoise(self.noise, np.full(len(lam), level)),
            "scale-perturb-rescale": IndependentNoise(self.noise, lam * (rescaled / budget) ** (1 / m)),
            "this allocation": result.mechanism,
        }
        rows = [(name, law.scales, law.mse, self.cost_of(law.scales)) for name, law in laws.items()]
        table = pd.DataFrame(rows, columns=["mechanism", "scales", "MSE", "loss"])
        with np.errstate(divide="ignore"):
            for name, measure in (("dB", "MSE"), ("loss dB", "loss")):
                table[name] = 10 * np.log10(table[measure].iloc[0] / table[measure])
        return table[["mechanism", "scales", "MSE", "dB", "loss", "loss dB"]]

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield one scale for all numbers and scales in proportion to the sensitivities; where laws are searched, one type for all."""
        if self.searched:
            for kind in CLOSED:
                with suppress(DesignError):  # Gaussian noise is not pure
                    yield f"{kind} on every coordinate", self.of_one_type(kind).solve(certify=False).value
            return
        losses = self.compare(result).set_index("mechanism")["loss"]
        yield "scale-perturb-rescale", losses["scale-perturb-rescale"]
        yield "one scale for all (i.i.d.)", losses["i.i.d."]

    def frame(self, result: Result) -> pd.DataFrame:
        """Return a row for each coordinate."""
        law, lam = result.mechanism, self.sensitivities
        table = {"coordinate": np.arange(len(lam)), "sensitivity": lam}
        if self.searched:
            return pd.DataFrame(
                {**table, "noise": list(law.kinds), **law.parameters, "variance": law.variance}
            )
        return pd.DataFrame(
            {**table, "scale": law.scales, "variance": law.variance, "spent": self.spent(result)}
        )

    def audit(self, result: Result) -> pd.DataFrame:
        if not self.searched:
            return super().audit(result)
        used, left = self._used(result), self.budget - self._used(result)
        row = "privacy", 0, used, self.budget, left, math.nan, left <= 1e-3 * self.budget
        return pd.DataFrame([row], columns=AUDIT_COLUMNS)

    def lines(self, result: Result) -> list[str]:
        law, steps = result.mechanism, "multiples of 2^-30 of each scale"
        if self.noise not in (*CLOSED, "mixed"):
            steps = "a lattice below 2^-20 of each sensitivity"
        if self.searched:
            first = [f"noise on coordinates: {_counted(law.kinds)}; {self._measure} {self._used(result):.9g}"]
        else:
            lam = self.sensitivities
            first = [
                f"{len(lam)} coordinates, disparity ν {disparity(lam):.4g}, Gini {gini(lam):.4g}",
                f"budget {self.budget:.9g}, {float(self.spent(result).sum()):.15g} of it consumed",
            ]
        return [
            *first,
            f"released on {steps}, wider by {law.lattice_cost:.2g}",
            f"MSE: {law.mse:.9g}",
        ]

    def describe(self, result: Result) -> Description:
        mixed, law = self.searched, result.mechanism
        noise = "Laplace or Gaussian" if self.noise == "mixed" else self.noise.replace("_", " ").capitalize()
        limits = [name for name in ("lower", "upper", "groups") if getattr(self, name) is not None]
        more = []
        if limits:
            more.append(f"The scales keep the limits given: {', '.join(limits)}.")
        if self.noise == "mixed":
            more.append(
                f"The search is never worse than either type alone. Its choice: {_counted(law.kinds)}."
            )
        elif mixed:
            more.append(
                "Shape and scale are searched for each number: other laws of the family may cost less."
            )
        spent = f"composed exactly: {self._measure} {at_most(self._used(result))}" if mixed else ""
        weighted = "" if self.weights is None else ", weighted"
        return Description(
            title=f"{noise} noise for {len(self.sensitivities)} numbers",
            what=f"{self.protection()} {noise} noise of its own {'parameters' if mixed else 'scale'} is added to each number, independently.",
            loss=f"sum of E|noise|^{shown(self.loss)} over the numbers{weighted}",
            more=tuple(more),
            consumed=spent or f"{at_most(float(self.spent(result).sum()))} of the budget consumed",
            picture="The standard deviation of the noise on each number, by its type."
            if mixed
            else "Above: the scale of the noise on each number. Below: the share of the budget that each number consumes.",
            rivals="The same requirement met by one type of noise on all numbers."
            if mixed
            else "The same requirement met by one scale for all numbers, and by scales in proportion to the sensitivities.",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw scales and shares of the budget by coordinate; of a mix the standard deviations, by type."""
        return self._draw_types(result, options) if self.searched else self._draw_scales(result, options)

    def _draw_types(self, result: Result, options: dict[str, float]) -> Figure:
        fig, axis = figure(**sized(options, 5.0, 3.2))
        deviation, kinds = np.sqrt(result.mechanism.variance), np.array(result.mechanism.kinds)
        x = np.arange(len(kinds))
        for k, kind in enumerate(sorted({*kinds} - {"none"}, reverse=True)):
            axis.plot(x[kinds == kind], deviation[kinds == kind], "o^"[k], color=COLOURS[k], label=kind)
        axis.set(xlabel="number", ylabel="standard deviation", ylim=(0, None))
        axis.legend()
        return fig

    def _draw_scales(self, result: Result, options: dict[str, float]) -> Figure:
        lam, scales, spent = self.sensitivities, result.mechanism.scales, self.spent(result)
        others = self.compare(result).set_index("mechanism")["scales"]
        fig, (above, below) = figure(2, 1, sharex=True, **sized(options, 5.0, 4.8))
        few = len(lam) <= _BARS
        order = np.arange(len(lam)) if few else np.argsort(lam)[np.linspace(0, len(lam) - 1, 400).astype(int)]
        x = np.arange(len(order)) if few else np.linspace(0, len(lam) - 1, len(order))
        if few:
            above.bar(x, scales, width=0.7, color=COLOURS[5], label="this allocation")
            below.bar(x, spent, width=0.7, color=COLOURS[5])
            below.set_xticks(x[:: 1 + len(x) // 12])
        else:
            above.plot(x, scales[order], color=COLOURS[0], label="this allocation")
            below.plot(x, spent[order], color=COLOURS[0])
        for k, name in enumerate(("i.i.d.", "scale-perturb-rescale"), start=1):
            line = above.plot(x, others[name][order], "--", color=COLOURS[k], label=name)
            if few:
                line[0].set(linestyle="", marker="_v"[k - 1], markersize=9, markeredgewidth=2)
        above.set(ylabel="scale", ylim=(0, None))
        legend_above(above)
        below.set(
            xlabel="number" if few else "number, by sensitivity", ylabel="share of the budget", ylim=(0, None)
        )
        return fig
