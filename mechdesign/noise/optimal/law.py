"""From a linear program's floating-point masses to a noise law that is private exactly.

A solver meets constraints to a tolerance; a deployed law must meet them. The masses are rounded to integers, the
hockey-stick sums evaluated exactly, and what is missing is bought from a law with privacy to spare (δ > 0) or by
raising the masses that are too small (δ = 0).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import ndimage

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.cell_product import CellProduct
from mechdesign.noise.optimal.costs import law_cost
from mechdesign.noise.optimal.question import NoiseQuestion
from mechdesign.problem.checks import instance
from mechdesign.typing import Array

__all__ = [
    "CellLawProof",
    "law_notes",
    "mixed_into_privacy",
    "outward_decay",
    "raised_into_privacy",
    "round_width",
]

_BITS = 60


@serializable("cell-law-proof")
@dataclass(frozen=True, eq=False)
class CellLawProof(Proof):
    r"""A cell law keeps (ε, δ), by its finitely many hockey-stick sums (`mechdesign.noise.cell_noise`), and costs so much.

    On c coordinates that change at once, each of which keeps (ε/c, δ/c), all of them keep (ε, δ): basic composition
    (Dwork and Roth 2014, theorem 3.16). The sums and the cost are rational; that of a callable loss is computed in doubles,
    rounded up.
    """

    speaks_of = ("privacy", "value")

    def check(self, stated: Certificate) -> Iterator[Claim]:
        question = instance("question", stated.question, NoiseQuestion)
        law, size, moved = stated.law, 1, 1
        if isinstance(stated.law, CellProduct):
            law, size, moved = stated.law.law, stated.law.dimension, stated.law.moved
        instance("law", law, CellNoise)
        if (size, moved) != (question.dimension, question.moved):
            raise DesignError.of(
                "dimension", (size, moved), "must be the question's: numbers, and how many change"
            )
        spare = Fraction(question.delta) - moved * law.exact_delta(Fraction(question.epsilon) / moved)
        claim = f"delta at epsilon = {question.epsilon:g} is at most {question.delta:g}"
        yield Claim(claim, PROVED, float(spare), spare >= 0)
        reach = Fraction(law.width) * law.cells_per_shift - Fraction(question.sensitivity)
        yield Claim("it holds for every change up to the sensitivity", PROVED, float(reach), reach >= 0)
        room = Fraction(stated.value) - law_cost(law, question.given_loss)
        how = PROVED if question.given_loss.polynomial else RECOMPUTED
        yield Claim(f"the expected loss is at most {stated.value:.9g}", how, float(room), room >= 0)


def law_notes(question: NoiseQuestion, law: CellNoise) -> tuple[str, ...]:
    """What a reader should know of a law before trusting it."""
    notes = []
    if not question.given_loss.polynomial:
        notes.append(
            "the loss is a callable: its floating-point values are taken as exact, its convexity sampled"
        )
    if law.spike:
        notes.append(
            f"a spike of mass {float(law.spike / law.total):.3g} and width {law.spike_width:.3g} sits at 0: "
            "δ is large enough that almost exact answers pay"
        )
    return tuple(notes)


def round_width(width: Fraction) -> float:
    """Round a cell width up to 36 significant bits, so that edges are doubles and n cells span the sensitivity."""
    exponent = math.frexp(float(width))[1] - 36
    unit = Fraction(2) ** exponent
    return float(math.ceil(width / unit) * unit)


def outward_decay(epsilon: float) -> Fraction:
    """Return a rational at least e^{-ε}, the slowest decay per sensitivity that pure ε-DP forces on the tails."""
    return Fraction(math.ceil(2**64 / exp_lower(epsilon)), 2**64)


def geometric_masses(
    cells: int, shift: int, *, epsilon: float, delta: float, half: bool
) -> tuple[Array, int]:
    """Return truncated geometric masses that are (ε, δ)-DP with room, on at least `cells` cells; and their number.

    Decay e^{-ε} per `shift` cells makes every pair of cells harmless; only the `shift` outermost cells, whose
    partners have no mass, count. The support grows until those weigh at most 0.9 δ.
    """
    reach = max(1, math.ceil(shift * math.log1p(math.expm1(epsilon) / (1.8 * delta)) / epsilon))
    reach = max(1, min(reach, 4_000_000))
    while True:
        count = 2 * reach if half else 2 * reach + 1
        position = np.abs(np.arange(count) - (count - 1) / 2)
        masses = np.exp(-epsilon * position / shift)
        masses /= masses.sum()
        if masses[-shift:].sum() <= 0.9 * delta or count > 8_000_000:
            break
        reach += max(1, reach // 16)
    if count < cells:
        padding = (cells - count) // 2
        masses = np.pad(masses, padding)
    return masses, len(masses)


def _integers(masses: Array) -> list[int]:
    return [int(m) for m in np.ldexp(masses, _BITS).tolist()]


def mixed_into_privacy(
    masses: Array, spike: float, *, epsilon: float, delta: float, half: bool, **shape: Any
) -> CellNoise:
    """Return an exactly (ε, δ)-DP law close to `masses`, mixed with a geometric law as far as needed (δ > 0)."""
    n = shape["cells_per_shift"]
    reserve, count = geometric_masses(len(masses), n, epsilon=epsilon, delta=delta, half=half)
    masses = np.pad(np.maximum(masses, 0.0), (count - len(masses)) // 2)
    used = np.flatnonzero(masses + 0.0 > 2.0**-_BITS)
    # Equal trimming on both sides keeps a symmetric law symmetric.
    trim = int(min(used[0], count - 1 - used[-1])) if used.size else 0
    limit = Fraction(delta)

    def law(share: float) -> CellNoise:
        mixed = (1 - share) * masses + share * reserve
        cut = trim if share == 0 else 0
        weights = _integers(mixed[cut : len(mixed) - cut])
        extra = int(Fraction(max(0.0, (1 - share) * spike)) * 2**_BITS)
        start = -len(weights) * shape["width"] / 2
        return CellNoise(
            weights=tuple(weights),
            start=start,
            spike=extra,
            spike_width=shape["spike_width"],
            width=shape["width"],
            cells_per_shift=n,
        )

    share = 0.0 if used.size or spike > 0 else 1.0
    candidate = law(share)
    excess = float(candidate.exact_delta(epsilon) - limit)
    while excess > 0:
        # The reserve's own sum is at most 0.9 δ, and the sums are convex in the law.
        share = min(1.0, max(2 * share, 1.001 * excess / (excess + 0.1 * delta) + 1e-13))
        candidate = law(share)
        excess = float(candidate.exact_delta(epsilon) - limit)
        if share == 1.0 and excess > 0:
            raise SolverError("no law could be repaired to be private", solver="highs", status="inaccurate")
    return candidate


def raised_into_privacy(masses: Array, *, epsilon: float, **shape: Any) -> CellNoise:
    """Return an exactly ε-DP law with geometric tails, by raising masses that are too small (δ = 0)."""
    n = shape["cells_per_shift"]
    decay = outward_decay(epsilon)
    weights: list[int] = []
    for margin in (1e-13, 1e-12, 1e-10, 1e-8):
        factor = math.exp(-epsilon) * (1 + margin)
        p = np.maximum(masses, masses.max() * 2.0**-_BITS)  # a fresh array
        while True:
            # A repeated cell is private towards its own period only if the period falls outwards.
            p[:n] = np.maximum.accumulate(p[:n])
            p[-n:] = np.maximum.accumulate(p[-n:][::-1])[::-1]
            # Tails follow from the outermost periods, so they join in with their decay.
            wide = np.concatenate([p[:n] * float(decay), p, p[-n:] * float(decay)])
            raised = np.maximum(p, factor * ndimage.maximum_filter1d(wide, 2 * n + 1)[n:-n])
            if np.all(raised <= p):
                break
            p = raised
        weights = [int(Fraction(float(m)) * 2**100) for m in p / p.sum()]
        start = -len(weights) * shape["width"] / 2
        law = CellNoise(
            weights=tuple(weights), width=shape["width"], start=start, cells_per_shift=n, decay=decay
        )
        if law.exact_delta(epsilon) == 0:
            return law
    raise SolverError("no law could be repaired to be private", solver="highs", status="inaccurate")
