"""Of which mechanisms the lower bound speaks, and the status that value, bound and gap allow.

A design seeks the best of every mechanism that answers its question, of independent noise of one law, of one family or of one
menu. Its lower bound speaks of the same class, unless the theorem of its proof says more. Both follow from the kinds of design
and proof; what the file states is compared with that. "Optimal" is a result whose design seeks the best of every mechanism and whose value
is as close to the bound as was asked; in a smaller class it is "best of its class".
"""

from __future__ import annotations

import math

from mechdesign.verifier.reading import Account, Json

EVERY, FAMILY, MENU = "every mechanism", "this family", "this menu"
INDEPENDENT, LOG_CONCAVE = "independent noise of one law", "symmetric log-concave noise"
SEARCHED_SHAPES = "flipped_huber", "osgt", "gennorm", "truncated_laplace", "staircase"
DISCRETE = "discrete_laplace", "discrete_gaussian"


def sought(design: Json) -> str:
    """The class of which a design seeks the best."""
    kind, bins = design[""], design.get("bins")
    if kind == "optimal-quantizer":
        return MENU if isinstance(bins, dict) and bins.get("") == "bin-search" else EVERY
    if kind == "private-choice" and design["largest"] is not None:
        return EVERY
    if kind == "optimal-noise":
        return EVERY if design["dimension"] == 1 else INDEPENDENT
    if kind in (
        "metric-quantizer",
        "metric-channel",
        "bounded-count",
        "local-workload",
        "table-problem",
        "lattice-problem",
    ):
        return EVERY
    if kind == "knorm" and grows_with_the_norm(design):
        return EVERY
    return MENU if kind in ("knorm", "vector-design", "plan") else FAMILY


def grows_with_the_norm(design: Json) -> bool:
    """Whether one round is asked under pure privacy, of one number, or of an ℓ₂ ball with all its signs by squared or ℓ₁ ball by absolute error."""
    if design["privacy"][""] != "pure-dp" or design["rounds"] != 1:
        return False
    order, s = 2 if design["loss"] == "squared" else 1, design["sensitivity"]
    if design["dimension"] == 1:
        return True
    alone = isinstance(s, dict) and all(s[name] is None for name in ("linf", "each", "l0", f"l{3 - order}"))
    return alone and (s["signed"] or order == 1) and design["norm"] in (None, order)


def spoken_of(result: Json) -> str:
    """The class of which the lower bound speaks."""
    design = result["design"]
    for proof in result["proofs"]:
        if proof[""] == "quantizer-dual-bound":
            duals = proof["duals"]
            if duals["outputs"] is None:
                return MENU if sought(design) == MENU else EVERY
            return EVERY if duals["between"] else MENU
        if proof[""] == "calibration-bound":
            if proof["share"] and design["noise"] not in (*SEARCHED_SHAPES, *DISCRETE):
                return FAMILY
            return INDEPENDENT if result["mechanism"]["law"]["name"] == "staircase" else LOG_CONCAVE
        if proof[""] == "subset-bound":
            return INDEPENDENT
    if design[""] == "vector-design":
        return EVERY
    return sought(design)


def standing(result: Json, account: Account) -> None:
    """Check the class stated, and the status."""
    value, bound, stated = (result[name] for name in ("value", "lower_bound", "bound_class"))
    if bound is not None or stated is not None:
        holds = bound is not None and stated == spoken_of(result)
        account.agrees(f"the lower bound is of {stated or 'no class that is stated'}", holds)
    status, asked = result["solver_report"]["status"], result["asked_gap"]
    holds, words, left = (
        math.isfinite(value) and (bound is None or -math.inf < bound <= value),
        "no optimum is claimed",
        None,
    )
    if status in ("optimal", "best of its class"):
        words = "value and lower bound are as close as was asked"
        if bound is not None and type(asked) in (int, float):
            left = asked - max(0.0, value - bound) / max(abs(value), 1e-300)
        holds = holds and left is not None and left >= 0 and asked <= 1
        holds = holds and (status == "optimal") == (sought(result["design"]) == EVERY)
        if account.weakest != "proved":  # it rests on what is said of the mechanism, the value and the bound
            account.add(f"status {status!r}: {words}", account.weakest, holds, left)
            return
    account.agrees(f"status {status!r}: {words}", holds, left)
