"""What results of optimal noise say: the question in words, constraints, tables and pictures."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.errors import MechdesignError
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.page import Account
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.noise.calibration.design import calibrate
from mechdesign.noise.calibration.evaluation import consumed
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.cell_product import CellProduct
from mechdesign.noise.optimal.lattice_dual import LatticeDual
from mechdesign.noise.optimal.question import NoiseQuestion
from mechdesign.noise.pictures import draw_laws, relative_table
from mechdesign.problem.words import NEIGHBOURS, guarantee, loss_words, privacy_words, unit_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["account", "alternatives", "audit", "density", "draw", "kind", "lines"]


def kind(result: Result) -> str:
    """Which law it is: "one coordinate" for the optimum of one, or the name of a family."""
    held = result.tried()
    if not held.empty:
        return str(held["law"].iloc[0])
    return str(result.mechanism.law.dist.name) if _cells(result) is None else "one coordinate"


def _cells(result: Result) -> CellNoise | None:
    """The law on cells, if it is one."""
    noise = result.mechanism
    return noise.law if isinstance(noise, CellProduct) else noise if isinstance(noise, CellNoise) else None


def account(design: NoiseQuestion, result: Result) -> Account:
    """The question in words, and what the value is."""
    numbers = "one number" if design.dimension == 1 else f"{design.dimension} numbers"
    value = f"expected {loss_words(design.loss)}" + (" of one number" if design.dimension > 1 else "")
    law, together = _cells(result), ""
    if design.dimension > 1:
        all_move = design.moved == design.dimension
        together = ", all of them at once" if all_move else f", at most {design.moved} of them at once"
    what = f"the {kind(result).replace('_', ' ')} law"
    if law is not None:
        what = f"a density that is constant on {len(law.weights)} cells"
    bound = "every additive noise" if design.moved == 1 else "every independent noise of one law"
    question = [
        f"A query returns {numbers} about a data set. Between neighbouring data sets each changes by at "
        f"most {shown(design.sensitivity)}{together}. Independent noise of one law is added to each.",
        privacy_words(design.privacy, NEIGHBOURS),
        unit_words("computed the sensitivity", "The guarantee is for one release."),
        f"Wanted is the law of least {value}. The law found is {what}. The lower bound holds for {bound}.",
    ]
    exact = ""
    if law is not None:
        moved = design.moved
        spent = float(moved * law.exact_delta(Fraction(design.epsilon) / moved))
        exact = f"exact δ at most {at_most(spent, 4)}" if design.delta else "pure, exactly"
    return Account(
        f"Optimal noise for {numbers} at {guarantee(design.privacy)}",
        f"For {numbers}, sensitivity {shown(design.sensitivity)}: least {value}.",
        "\n\n".join(question),
        value,
        (guarantee(design.privacy), exact),
        "Above: the density of the noise on one number. Below: how often it is larger than t.",
        "The same requirement met by other laws, each at its least scale. For several numbers their costs are stated by the "
        "search, not checked.",
    )


def _usual(design: NoiseQuestion) -> dict[str, Any]:
    """Laplace and Gaussian noise at the same privacy."""
    found: dict[str, Any] = {}
    for name in ("laplace", "gaussian"):
        judged = "squared" if design.given_loss.squared else "absolute"
        try:
            noise = calibrate(
                name, privacy=design.privacy, sensitivity=design.sensitivity, loss=judged
            ).mechanism
        except MechdesignError:
            continue  # this law cannot meet the requirement
        found[name] = noise
    return found


def alternatives(design: NoiseQuestion, result: Result) -> pd.DataFrame:
    """What other laws cost at the same privacy."""
    loss = design.given_loss
    if design.dimension > 1:
        rows = [(str(n).replace("_", " "), float(v)) for n, v in result.tried().itertuples(index=False)]
    else:
        rows = [("this noise", result.value)]
        for name, noise in _usual(design).items() if loss.polynomial else ():
            cost = loss.absolute * noise.absolute_error + loss.squared * noise.variance
            rows.append((f"{name} noise", cost))
    if result.lower_bound:
        what = "of all laws" if design.moved == 1 else "of independent laws"
        rows.append((f"proved least {what}", result.lower_bound))
    return relative_table(rows if len(rows) > 1 else [])


def draw(design: NoiseQuestion, result: Result, **options: Any) -> Figure:
    """Draw the law and its tail; of one number with the usual laws at the same privacy."""
    noise = result.mechanism
    laws = {"this noise": noise if isinstance(noise, CellNoise) else noise.law}
    if design.dimension == 1:
        laws |= {name: usual.law for name, usual in _usual(design).items()}
    return draw_laws(laws, **options)


def audit(design: NoiseQuestion, result: Result) -> pd.DataFrame:
    """δ at every shift of a law on cells, at ε/c each of c coordinates that move; else δ of all coordinates."""
    law, moved, budget = _cells(result), design.moved, Fraction(design.delta)
    rows: list[tuple[Any, ...]] = []
    if law is None:
        lhs = consumed(result.mechanism, design.privacy).upper
        limit = design.delta or design.epsilon  # under pure privacy what counts is the largest loss
        rows.append(("privacy", 0, lhs, limit, limit - lhs, math.nan, limit - lhs <= 1e-2 * limit))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)
    duals = {}
    for proof in result.proofs:
        if isinstance(proof, LatticeDual):
            duals = dict(zip(proof.shifts.tolist(), proof.totals.tolist()))
    for shift, value in law.hockey_stick(Fraction(design.epsilon) / moved).items():
        slack = budget - moved * value
        dual = float(duals.get(shift, np.nan))
        active = slack <= Fraction(1, 10**9)
        rows.append(("privacy", shift, float(moved * value), design.delta, float(slack), dual, active))
    rows.append(("normalisation", 0, 1.0, 1.0, 0.0, np.nan, True))
    return pd.DataFrame(rows, columns=AUDIT_COLUMNS)


def density(law: CellNoise) -> pd.DataFrame:
    """The law's density, a row per cell."""
    right = law.start + law.width * np.array(law.ends, dtype=float)
    left = np.append(law.start, right[:-1])
    heights = [float(w / law.total) / h for w, h in zip(law.weights, (right - left).tolist())]
    return pd.DataFrame({"left": left, "right": right, "density": heights})


def lines(design: NoiseQuestion, result: Result) -> list[str]:
    """The law and what its privacy is exactly."""
    law = _cells(result)
    if law is None:
        return [result.mechanism.summary(), f"law: {kind(result)}"]
    moved = design.moved
    spent = float(moved * law.exact_delta(Fraction(design.epsilon) / moved))
    return [
        f"law: {len(law.weights)} cells of width {law.width:.6g}, {law.cells_per_shift} per sensitivity"
        + (f", spike of mass {float(law.spike / law.total):.3g}" if law.spike else "")
        + (", geometric tails" if law.decay else ""),
        f"release: on the lattice of step {law.step:.6g}, at most {law.step / law.width:.1g} of a cell from the law",
        f"exact delta: {spent:.9g} (asked: {design.delta:.9g})",
    ]
