"""Print and draw noise allocations, and compare them with the usual choices of scales."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import pandas as pd

from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.noise.allocation.composed import LEVELS, composed, delta_at
from mechdesign.noise.allocation.disparity import disparity, gini
from mechdesign.noise.allocation.proofs import AllocationProof, ScalesDesign, changes_within, slack
from mechdesign.noise.allocation.separable import power
from mechdesign.noise.allocation.several_model import largest_spent
from mechdesign.noise.vector_noise import IndependentNoise, MixedNoise
from mechdesign.plotting import COLOURS, figure, legend_above, sized
from mechdesign.problem.checks import instance, number
from mechdesign.problem.privacy import Pointwise
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.words import Description
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS = 60  # coordinates that are drawn one by one; more are sorted by sensitivity


class AllocationPage(ScalesDesign):
    """Prints, pages and pictures of allocations of scales, or of types and scales ("mixed")."""

    asks: ClassVar[str] = "numbers"
    noise: str
    sensitivities: Any
    privacy: Any
    bounds: Sensitivity | None
    cost_of: Callable[[Array], float]
    of_one_type: Callable[[str], ScalesDesign]

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
        terms, small, asked = law.terms(), law.small, super().tradeoff(result, at)
        if self.bounds is not None or len(terms) > LEVELS:
            return asked
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
        return composed(result.mechanism, instance("privacy", self.privacy, *get_args(Pointwise)))[0]

    @property
    def _measure(self) -> str:
        """What `_used` is, with the words for "at most"."""
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
        if self.noise == "mixed":
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
        """Yield one scale for all numbers and scales in proportion to the sensitivities; for a mix, one type for all."""
        if self.noise == "mixed":
            for kind in ("gaussian", "laplace"):
                yield f"{kind} on every coordinate", self.of_one_type(kind).solve(certify=False).value
            return
        losses = self.compare(result).set_index("mechanism")["loss"]
        yield "scale-perturb-rescale", losses["scale-perturb-rescale"]
        yield "one scale for all (i.i.d.)", losses["i.i.d."]

    def frame(self, result: Result) -> pd.DataFrame:
        """Return a row for each coordinate."""
        law, lam = result.mechanism, self.sensitivities
        table = {"coordinate": np.arange(len(lam)), "sensitivity": lam}
        if self.noise == "mixed":
            return pd.DataFrame(
                {**table, "noise": list(law.kinds), "scale": law.scales, "variance": law.variance}
            )
        return pd.DataFrame(
            {**table, "scale": law.scales, "variance": law.variance, "spent": self.spent(result)}
        )

    def audit(self, result: Result) -> pd.DataFrame:
        if self.noise != "mixed":
            return super().audit(result)
        used, left = self._used(result), self.budget - self._used(result)
        row = "privacy", 0, used, self.budget, left, math.nan, left <= 1e-3 * self.budget
        return pd.DataFrame([row], columns=AUDIT_COLUMNS)

    def lines(self, result: Result) -> list[str]:
        law = result.mechanism
        if self.noise == "mixed":
            laplace, gaussian, none = (law.kinds.count(kind) for kind in ("laplace", "gaussian", "none"))
            first = [
                f"{laplace} coordinates with Laplace noise, {gaussian} with Gaussian, {none} with none; "
                f"{self._measure} {self._used(result):.9g}"
            ]
        else:
            lam = self.sensitivities
            first = [
                f"{len(lam)} coordinates, disparity ν {disparity(lam):.4g}, Gini {gini(lam):.4g}",
                f"budget {self.budget:.9g}, {float(self.spent(result).sum()):.15g} of it consumed",
            ]
        return [
            *first,
            f"released on multiples of 2^-30 of each scale, wider by {law.lattice_cost:.2g}",
            f"MSE: {law.mse:.9g}",
        ]

    def describe(self, result: Result) -> Description:
        mixed, law = self.noise == "mixed", result.mechanism
        noise = "Laplace or Gaussian" if mixed else self.noise.capitalize()
        limits = [name for name in ("lower", "upper", "groups") if getattr(self, name) is not None]
        more = []
        if limits:
            more.append(f"The scales keep the limits given: {', '.join(limits)}.")
        if mixed:
            counts = [law.kinds.count(kind) for kind in ("laplace", "gaussian")]
            more.append(
                f"The search is never worse than either type alone. It chose Laplace noise on {counts[0]} numbers and Gaussian noise on {counts[1]}."
            )
        spent = f"composed exactly: {self._measure} {at_most(self._used(result))}" if mixed else ""
        weighted = "" if self.weights is None else ", weighted"
        return Description(
            title=f"{noise} noise for {len(self.sensitivities)} numbers",
            what=f"{self.protection()} {noise} noise of its own scale is added to each number, independently.",
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
        return (
            self._draw_types(result, options) if self.noise == "mixed" else self._draw_scales(result, options)
        )

    def _draw_types(self, result: Result, options: dict[str, float]) -> Figure:
        fig, axis = figure(**sized(options, 5.0, 3.2))
        deviation, kinds = np.sqrt(result.mechanism.variance), np.array(result.mechanism.kinds)
        x = np.arange(len(kinds))
        for k, kind in enumerate(("laplace", "gaussian")):
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
