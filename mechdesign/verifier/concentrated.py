"""Zero-concentrated privacy of any law, by the Rényi divergences of every order.

**Theorem** (Bun and Steinke 2016). Losses L are (ξ, ρ)-zCDP if g(θ) = log E_P e^{θL} ≤ θ (ξ + ρ (1 + θ)) for all θ > 0, g the sum of
those of the coordinates.

g is convex and g(0) = 0, so that between two orders it lies below its chord. The right side is convex too: chord less right side is
largest at its ends or where its slope is 0. A pair of laws whose hockey-stick curve is nowhere lower has a g that is nowhere
lower, so the ends of a cell may stand for the cell (`mechdesign.verifier.composition`). From some order on a closed form takes over:
g ≤ θℓ for losses of at most ℓ; and where the density is e^(-t²/2) times a function that falls away from 0 and is ψ(0)/ψ ≤ e^c
apart at the shift r, g(θ) ≤ θ ((1 + θ) r²/2 + c).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache

from mechdesign.verifier.composition import SLACK, Cell
from mechdesign.verifier.discrete_laws import WHOLE, staircase_atoms
from mechdesign.verifier.noise_laws import CONTINUOUS, PI, ZERO, Law, continuous_cells, mills

Moments = Callable[[Decimal], Decimal]
"""E_P e^{θL} of θ > 0, from above."""
CELLS = 2**10
MOST_ORDERS = 600
DIGITS = 30


def atoms(cells: list[Cell]) -> list[tuple[Decimal, Decimal]]:
    """Losses and masses at the ends of cells."""
    found: dict[Decimal, Decimal] = {}
    for p, q, low, high in cells:
        above = p
        if high - low > SLACK:
            above = min(max((p - low.exp() * (q - SLACK)) / (1 - (low - high).exp()), ZERO), p)
        for loss, mass in ((high, above), (low, p - above)):
            found[loss] = found.get(loss, ZERO) + mass
    return list(found.items())


def gaussian_ends(law: Law, start: Decimal, offset: Decimal, shift: Decimal) -> Moments:
    """What lies further than `start` from the middle, where the density is ∝ e^(-t²/2 - offset·t) and the loss a line."""
    near, far, loss = start - shift / 2, start + shift / 2, law.loss(start, shift)
    right, left = (law.upper(t) / mills(t + offset) for t in (near, far))

    def moment(theta: Decimal) -> Decimal:
        up, move = (theta * loss).exp(), theta * shift
        return right * up * signed_mills(near + offset - move) + left / up * mills(far + offset + move)

    return moment


def signed_mills(x: Decimal) -> Decimal:
    return mills(x) if x >= 0 else (2 * PI).sqrt() * (x * x / 2).exp() - mills(-x)


def moments(name: str, shapes: tuple[Decimal, ...], shift: Decimal, largest: Decimal) -> Moments:
    """E e^{θL} of one coordinate, whose loss is at most `largest` or has Gaussian tails."""
    tail: Moments | None = None
    if name == "staircase":
        cells = staircase_atoms(shapes, shift)
    elif name in WHOLE:
        cells, _ = WHOLE[name](*shapes, shift).cells(int(shift))
    else:
        law, half = CONTINUOUS[name](*shapes), shift / 2
        if largest.is_finite():
            cells, beyond = continuous_cells(law, shift, Decimal("1e-60"), ZERO, CELLS)
            cells.append(Cell(beyond, ZERO, largest, largest))
        else:
            start, offset = (half, shapes[0]) if name == "osgt" else (half + shapes[0], ZERO)
            cells, _ = continuous_cells(law._replace(end=start + half), shift, ZERO, ZERO, CELLS)
            *cells, _ = cells
            tail = gaussian_ends(law, start, offset, shift)
    points = atoms(cells)

    def moment(theta: Decimal) -> Decimal:
        with localcontext() as context:
            context.prec = DIGITS
            found = sum((mass * (theta * loss).exp() for loss, mass in points), ZERO)
            return (found + (tail(theta) if tail else ZERO)) * (1 + Decimal(f"1e-{DIGITS - 5}"))

    return moment


def concentrated(coordinates: list[tuple[Moments, int]], xi: Decimal, rho: Decimal, last: Decimal) -> bool:
    """Whether Σ count·g(θ) ≤ θ (ξ + ρ (1 + θ)) for all θ up to `last`."""
    seen = 0

    @cache
    def g(theta: Decimal) -> Decimal:
        nonlocal seen
        seen += 1
        return sum((count * moment(theta).ln() for moment, count in coordinates), ZERO) if theta else ZERO

    def kept(theta: Decimal) -> bool:
        return g(theta) <= theta * (xi + rho * (1 + theta))

    intervals = [(ZERO, last)]
    while intervals:
        low, high = intervals.pop()
        slope = (g(high) - g(low)) / (high - low)
        top = (slope - xi - rho) / (2 * rho)  # where chord and right side have one slope
        between = g(low) + slope * (top - low) <= top * (xi + rho * (1 + top)) if low < top < high else True
        if not kept(high) or seen > MOST_ORDERS:
            return False
        if not between:
            middle = (low + high) / 2
            intervals += [(low, middle), (middle, high)]
    return True
