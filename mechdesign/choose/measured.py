"""A mechanism's row in the table of a comparison, computed from its result; and the least error that is proved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.choose.accuracies import Accuracy, accuracy_of, error_of
from mechdesign.choose.candidates import candidates, fewest
from mechdesign.choose.questions import LocalReport, NumericQuery, Question
from mechdesign.errors import MechdesignError
from mechdesign.evidence.results import Result
from mechdesign.noise.calibration.design import CalibrationProof
from mechdesign.problem.words import guarantee
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.quantizers.optimal.outputs import Alphabet

__all__ = ["COLUMNS", "least_error", "measured", "ranked"]

COLUMNS = ["mechanism", "error", "ratio", "standard deviation", "mean absolute error", "95% half-width"]
COLUMNS += ["privacy", "bits", "assumes", "seconds", "note"]
_STEPS = 300
"""Grid of outputs, on each side, from which the least loss of any report is bounded."""


def measured(
    name: str,
    question: Question,
    privacy: Any,
    result: Result,
    seconds: float = math.nan,
    *,
    fresh: bool = False,
) -> dict[str, Any]:
    """A row of the table, but for the ratio; what was certified a moment ago (`fresh`) is not composed again."""
    found: Accuracy = accuracy_of(result, question)
    known = candidates(question).get(name)
    return {
        "mechanism": name,
        "error": error_of(result, question),
        "standard deviation": found.standard_deviation,
        "mean absolute error": found.absolute_error,
        "95% half-width": found.half_width,
        "privacy": _privacy_claim(result, privacy, fresh),
        "bits": float(fewest(result)) if isinstance(question, LocalReport) else math.nan,
        "assumes": known.assumes if known else "",
        "seconds": seconds,
        "note": "; ".join((*result.notes, *result.remarks())),
        "result": result,
    }


def _privacy_claim(result: Result, privacy: Any, fresh: bool) -> str:
    """The guarantee, and how the certificate's first claim, which is privacy, was checked; again, unless it is fresh."""
    if result.certificate is None:
        return "not certified"
    held = result.certificate
    proof = next(iter(getattr(held, "proofs", ())), None)
    if fresh and isinstance(proof, CalibrationProof):  # held to its claims a moment ago
        return f"{guarantee(privacy)}: {proof.spent.how}"
    first = held.checks().iloc[0]
    return f"{guarantee(privacy)}: {first['how'] if first['holds'] else 'REFUTED'}"


def ranked(rows: list[dict[str, Any]], least: float | None) -> pd.DataFrame:
    """The table of these rows, best first, with ratios to the least error proved, or to the best found."""
    table = pd.DataFrame(rows).reindex(columns=COLUMNS).sort_values("error", kind="stable", ignore_index=True)
    floor = table["error"].min() if least is None else least
    table["ratio"] = table["error"] / floor if floor > 0 else np.nan
    for name in ("privacy", "assumes", "note"):
        table[name] = table[name].fillna("").astype(object)
    return table


def least_error(
    question: Question,
    privacy: Any,
    results: dict[str, Result],
    time_limit: float | None = None,
    *,
    gap: float = 1e-5,
) -> tuple[float | None, str]:
    """The least error proved, and of what; None where nothing is proved. `gap`: of the bound of any reports."""
    if isinstance(question, LocalReport):
        return _least_report(question, privacy, results, time_limit, gap)
    if isinstance(question, NumericQuery) and (question.scalar is None or question.whole):
        return None, ""  # whole numbers need not be protected from changes in between
    name = "optimal noise" if isinstance(question, NumericQuery) else "optimal channel"
    if name in results and results[name].lower_bound is not None:
        what = "additive noise" if isinstance(question, NumericQuery) else "channel between the points"
        return results[name].lower_bound, f"no {what} does better"
    return None, ""


def _least_report(
    q: LocalReport, privacy: Any, results: dict[str, Result], time_limit: float | None, gap: float
) -> tuple[float | None, str]:
    """A bound for all unbiased reports, of any number of outputs, as far out as those compared.

    An output between two points of a grid of step h may be replaced by one of these at random, without bias: that costs at
    most h/2 in absolute and h²/4 in squared error, so the least loss on the grid less that bounds all of them.
    """
    if q.loss.function is not None:
        return None, ""
    reach = max(float(np.abs(result.mechanism.bins).max()) for result in results.values()) * (1 + 1e-12)
    grid = Alphabet(reach, reach / _STEPS)
    try:
        found = OptimalQuantizer(grid, privacy, q.prior, q.loss, input_range=q.input_range).solve(
            gap=gap, time_limit=time_limit
        )
    except MechdesignError:
        return None, ""
    step = 2 * reach / (grid.size - 1) * (1 + 1e-9)
    bound = (found.lower_bound or 0.0) - q.loss.absolute * step / 2 - q.loss.squared * step**2 / 4
    if bound <= 0:
        return None, ""
    return (
        bound,
        f"no unbiased report with outputs up to ±{reach:.4g} does better, however many outputs it has",
    )
