"""What a noise allocation returns: scales, how they share the budget, and what the usual choices would cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.allocation.certificate import AllocationCertificate
from mechdesign.noise.allocation.disparity import disparity, gini
from mechdesign.noise.allocation.separable import power
from mechdesign.noise.allocation.several_model import largest_spent
from mechdesign.noise.vector_noise import IndependentNoise
from mechdesign.plotting import COLOURS, figure, legend_above, sized
from mechdesign.problem.checks import number
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AllocationResult", "allocation_account", "allocation_alternatives", "draw_allocation"]

_BARS = 60  # coordinates that are drawn one by one; more are sorted by sensitivity


def allocation_account(result: Any) -> Account:
    """What was asked of the scales."""
    design, lam = result.design, result.design.sensitivities
    noise = design.noise.capitalize()
    order = shown(design.loss)
    value = f"sum of E|noise|^{order} over the coordinates" + ("" if design.weights is None else ", weighted")
    limits = [name for name in ("lower", "upper", "groups") if getattr(design, name, None) is not None]
    together = "all may change at once" if design.bounds is None else f"together: {design.bounds}"
    question = [
        f"A query returns {len(lam)} numbers about a data set. Between neighbouring data sets number i changes by at most "
        f"λ_i, which lies between {shown(lam.min())} and {shown(lam.max())}; {together}. "
        f"{noise} noise of a scale of its own is added to each, independently.",
        privacy_words(design.privacy, NEIGHBOURS),
        unit_words("computed the sensitivities", "The guarantee is for the whole vector, released once."),
        f"Wanted are the scales of least {value}"
        + (f", within the limits given ({', '.join(limits)})" if limits else "")
        + ".",
    ]
    return Account(
        f"{noise} noise for {len(lam)} numbers at {guarantee(design.privacy)}",
        f"Scales by coordinate; least {value}.",
        "\n\n".join(question),
        value,
        (guarantee(design.privacy), f"{at_most(float(result.spent.sum()))} of the budget spent"),
        "Above: the scale of the noise on each number. Below: the share of the budget that each number takes.",
        "The same requirement met by one scale for all numbers, and by scales in proportion to the sensitivities.",
    )


def allocation_alternatives(result: Any) -> pd.DataFrame:
    """What the usual choices cost at the same privacy."""
    table = result.compare()
    table = table.iloc[::-1].reset_index(drop=True)
    own = float(table["loss"].iloc[0])
    names = {"optimal": "this allocation", "i.i.d.": "one scale for all (i.i.d.)"}
    return pd.DataFrame(
        {
            "mechanism": table["mechanism"].replace(names),
            "error": table["loss"],
            "relative": table["loss"] / own if own else np.nan,
        }
    )


def draw_allocation(result: Any, **options: Any) -> Figure:
    """Draw scales and shares of the budget by coordinate."""
    lam = result.design.sensitivities
    others = result.compare().set_index("mechanism")["scales"]
    fig, (above, below) = figure(2, 1, sharex=True, **sized(options, 5.0, 4.8))
    few = len(lam) <= _BARS
    order = np.arange(len(lam)) if few else np.argsort(lam)[np.linspace(0, len(lam) - 1, 400).astype(int)]
    x = np.arange(len(order)) if few else np.linspace(0, len(lam) - 1, len(order))
    if few:
        above.bar(x, result.scales, width=0.7, color=COLOURS[5], label="this allocation")
        below.bar(x, result.spent, width=0.7, color=COLOURS[5])
        below.set_xticks(x[:: 1 + len(x) // 12])
    else:
        above.plot(x, result.scales[order], color=COLOURS[0], label="this allocation")
        below.plot(x, result.spent[order], color=COLOURS[0])
    for k, name in enumerate(("i.i.d.", "scale-perturb-rescale"), start=1):
        style: Any = {"marker": "_v"[k - 1], "markersize": 9, "markeredgewidth": 2} if few else {}
        above.plot(
            x, others[name][order], linestyle="" if few else "--", color=COLOURS[k], label=name, **style
        )
    above.set(ylabel="scale", ylim=(0, None))
    legend_above(above)
    below.set(
        xlabel="number" if few else "number, by sensitivity", ylabel="share of the budget", ylim=(0, None)
    )
    return fig


@serializable("allocation-result")
@dataclass(frozen=True, eq=False)
class AllocationResult(OldResult):
    """Scales per coordinate with their cost, and how the privacy budget is split."""

    certificate: AllocationCertificate | None = None

    @property
    def scales(self) -> Array:
        """σ_i or β_i, shape (K,)."""
        return self.mechanism.scales

    @cached_property
    def spent(self) -> Array:
        r"""Share of the privacy budget each coordinate takes: :math:`\lambda_i^2/(\sigma_i\mu_0)^2` or
        :math:`\lambda_i/(\beta_i\varepsilon)`; the shares sum to at most 1. Under several bounds they are those of the worst mix
        of changes, :math:`\sum_i` of which the whole budget spends: in proportion to the coordinates' losses."""
        if self.design.changes is not None:
            return self._shares()
        lam = self.design.sensitivities
        ratio = np.divide(lam, self.scales, out=np.zeros(len(lam)), where=lam > 0)
        return power(ratio, self.design.spend) / self.design.budget

    def _shares(self) -> Array:
        weights = 1.0 if self.design.weights is None else self.design.weights
        losses = weights * power(self.scales / self.scales.max(), float(self.design.loss))
        moved: Array = losses * (self.design.sensitivities > 0)
        return moved / moved.sum() * (1 - self._claims().slack() / self.design.budget)

    @property
    def mse(self) -> float:
        """E‖T‖₂²."""
        return self.mechanism.mse()

    def compare(self, *, overall: float | None = None) -> pd.DataFrame:
        """Compare with identical noise and with scale-perturb-rescale.

        Parameters
        ----------
        overall : float, optional
            The ℓ₂ (Gaussian) or ℓ₁ (Laplace) sensitivity of the whole query, for the i.i.d. row. Leaving it
            out states that the coordinates are decoupled: it is then the norm of the profile.

        Returns
        -------
        DataFrame
            Rows "i.i.d.", "scale-perturb-rescale", "optimal"; columns mechanism, scales (arrays of shape
            (K,)), MSE, dB (MSE reduction over i.i.d.), loss (the design's own), loss dB.
        """
        design = self.design
        lam, m, budget = design.sensitivities, design.spend, design.budget
        norm, rescaled = float(np.linalg.norm(lam, m)), float(len(lam))
        if design.changes is not None:
            norm, rescaled = (largest_spent(design.changes, s)[0] for s in (np.ones(len(lam)), lam))
            norm **= 1 / m
        allowed = f"must be positive and at most {norm:g}, the norm of the profile or of the largest change"
        if overall is not None and not 0 < number("overall", overall, allowed) <= norm * (1 + 1e-12):
            raise DesignError.of("overall", overall, allowed)
        level = (norm if overall is None else float(overall)) / budget ** (1 / m)
        laws = {
            "i.i.d.": IndependentNoise(noise=design.noise, scales=np.full(len(lam), level)),
            "scale-perturb-rescale": IndependentNoise(
                noise=design.noise, scales=lam * (rescaled / budget) ** (1 / m)
            ),
            "optimal": self.mechanism,
        }
        rows = []
        for name, law in laws.items():
            rows.append(
                {
                    "mechanism": name,
                    "scales": law.scales,
                    "MSE": law.mse(),
                    "loss": design.cost_of(law.scales),
                }
            )
        frame = pd.DataFrame(rows)
        with np.errstate(divide="ignore"):
            frame["dB"] = 10 * np.log10(frame["MSE"].iloc[0] / frame["MSE"])
            frame["loss dB"] = 10 * np.log10(frame["loss"].iloc[0] / frame["loss"])
        return frame[["mechanism", "scales", "MSE", "dB", "loss", "loss dB"]]

    def to_frame(self) -> pd.DataFrame:
        """A row per coordinate."""
        lam = self.design.sensitivities
        return pd.DataFrame(
            {
                "coordinate": np.arange(len(lam)),
                "sensitivity": lam,
                "scale": self.scales,
                "variance": self.mechanism.variance(),
                "spent": self.spent,
            }
        )

    def exact_spent(self) -> Fraction:
        r"""Return :math:`\sum \lambda_i^2/\sigma_i^2` or :math:`\sum \lambda_i/\beta_i` in rational arithmetic."""
        return self._claims().exact_spent()

    def _claims(self) -> AllocationCertificate:
        return self.certificate or AllocationCertificate(self.design, self.scales, self.value, 0.0, 0.0)

    def account(self) -> Account:
        return allocation_account(self)

    def alternatives(self) -> pd.DataFrame:
        return allocation_alternatives(self)

    def plot(self, **options: Any) -> Figure:
        """Draw scales and shares of the budget by coordinate."""
        return draw_allocation(self, **options)

    def _audit(self) -> pd.DataFrame:
        design, slack = self.design, self._claims().slack()
        dual = float("nan") if self.duals is None else float(self.duals["dual"].iloc[0])
        rows = [("privacy", 0, design.budget - slack, design.budget, slack, dual, True)]
        for name, sign in (("lower", 1), ("upper", -1)):
            limit = getattr(design, name)
            if limit is not None:
                for i, (scale, bound) in enumerate(zip(self.scales, limit)):
                    if math.isfinite(bound):
                        gap = sign * (scale - bound)
                        active = gap <= 1e-9 * max(bound, 1e-300)
                        rows.append((name, i, scale, bound, gap, float("nan"), active))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        lam = self.design.sensitivities
        return [
            f"{len(lam)} coordinates, disparity ν {disparity(lam):.4g}, Gini {gini(lam):.4g}",
            f"budget {self.design.budget:.9g}, spent {float(self.spent.sum()):.15g} of it",
            f"released on multiples of 2^-30 of each scale, wider by {self.mechanism.lattice_cost:.2g}",
            f"MSE: {self.mse:.9g}",
        ]
