"""Zero-concentrated privacy of any law, by the Rényi divergences of every order.

**Theorem** (Bun and Steinke 2016). Losses L are (ξ, ρ)-zCDP if g(θ) = log E_P e^{θL} ≤ θ (ξ + ρ (1 + θ)) for all θ > 0, g the sum of
those of the coordinates.

**Between two orders** a < b. The second derivative of g at θ is the variance v of the losses tilted by e^{θL}; the third one is their
third central moment, at most R v in size where the losses of a coordinate are at most R apart. So the logarithm of a coordinate's v
falls by at most R (b − a), the second derivative is at least c = Σ v e^{−R(b − a)}, v that at a, and what is left of g less the
right side, h, whose second derivative is at least c − 2ρ, is

    h(θ) ≤ chord of h + (2ρ − c)(θ − a)(b − θ)/2,

a parabola, largest at its ends or where its slope is 0. Where losses are small g is nearly ρθ(1 + θ), and c nearly 2ρ; c = 0 is
always true, as g is convex.

**Cells.** A pair of laws whose hockey-stick curve is nowhere lower has a g that is nowhere lower, so the ends of a cell may stand for
the cell (`mechdesign.verifier.composition`). From some order on a closed form takes over: g ≤ θℓ for losses of at most ℓ; and where
the density is e^(-t²/2) times a function that falls away from 0 and is ψ(0)/ψ ≤ e^c apart at the shift r, g(θ) ≤ θ ((1 + θ) r²/2 + c).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from typing import NamedTuple

from mechdesign.verifier.changes import Shifts
from mechdesign.verifier.composition import SLACK, Cell
from mechdesign.verifier.discrete_laws import WHOLE, staircase_atoms
from mechdesign.verifier.noise_laws import CONTINUOUS, PI, ZERO, Law, continuous_cells, mills
from mechdesign.verifier.reading import Account

CELLS = 2**10
MOST_ORDERS = 600
DIGITS = 30
ATOM = 12
"""Operations that a loss takes at an order, as `Account.takes` counts."""


class Moments(NamedTuple):
    """E_P e^{θL} of θ ≥ 0, from above; the variance of L tilted by e^{θL}, from below; the most that two losses are apart."""

    mean: Callable[[Decimal], Decimal]
    variance: Callable[[Decimal], Decimal]
    apart: Decimal


def concentrated(
    name: str,
    shapes: tuple[Decimal, ...],
    shifts: Shifts,
    largest: list[Decimal],
    xi: Decimal,
    rho: Decimal,
    account: Account,
) -> bool:
    """Whether coordinates that move so are (ξ, ρ)-zCDP: up to some order by their moments, beyond it by a closed form."""
    if name in ("osgt", "flipped_huber"):
        b = shapes[0]
        squares = sum((count * v * v for v, count in shifts), ZERO) / 2
        offsets = [v * b if name == "osgt" else (b * b - max(b - v, ZERO) ** 2) / 2 for v, _ in shifts]
    elif all(loss.is_finite() for loss in largest):
        squares, offsets = ZERO, largest
    else:
        return False
    offset = sum((count * c for (_, count), c in zip(shifts, offsets)), ZERO) - xi
    if offset <= 0:
        return squares <= rho
    if squares >= rho:
        return False
    last = max(offset / (rho - squares) - 1, Decimal("1e-3"))
    parts = [(moments(name, shapes, v, loss, account), count) for (v, count), loss in zip(shifts, largest)]
    return up_to(last, parts, xi, rho)


def up_to(last: Decimal, coordinates: list[tuple[Moments, int]], xi: Decimal, rho: Decimal) -> bool:
    """Whether Σ count·g(θ) ≤ θ (ξ + ρ (1 + θ)) for all θ up to `last`."""
    seen = 0

    @cache
    def left(theta: Decimal) -> Decimal:
        """g less the right side."""
        nonlocal seen
        seen += 1
        g = sum((count * part.mean(theta).ln() for part, count in coordinates), ZERO) if theta else ZERO
        return g - theta * (xi + rho * (1 + theta))

    apart = max(part.apart for part, _ in coordinates)
    intervals = [(ZERO, last)]
    while intervals:
        low, high = intervals.pop()
        if left(high) > 0 or seen > MOST_ORDERS:
            return False
        width, variance = high - low, sum(count * part.variance(low) for part, count in coordinates)
        bend = rho - variance * (-apart * width).exp() / 2
        slope = (left(high) - left(low)) / width
        top = (width + slope / bend) / 2 if bend > 0 else ZERO  # where the slope is 0
        if 0 < top < width and left(low) + top * (slope + bend * (width - top)) > 0:
            middle = (low + high) / 2
            intervals += [(middle, high), (low, middle)]
    return True


def moments(
    name: str, shapes: tuple[Decimal, ...], shift: Decimal, largest: Decimal, account: Account
) -> Moments:
    """E e^{θL} of one coordinate, whose loss is at most `largest` or has Gaussian tails."""
    tail: Callable[[Decimal], Decimal] | None = None
    if name == "staircase":
        cells = staircase_atoms(shapes, shift)
    elif name in WHOLE:
        cells, _ = WHOLE[name](*shapes, shift).cells(int(shift), 16 * CELLS)
    else:
        law, half = CONTINUOUS[name](*shapes), shift / 2
        account.takes(law.work * CELLS)
        if largest.is_finite():
            cells, beyond = continuous_cells(law, shift, Decimal("1e-60"), ZERO, CELLS)
            cells.append(Cell(beyond, ZERO, largest, largest))
        else:
            start, offset = (half, shapes[0]) if name == "osgt" else (half + shapes[0], ZERO)
            cells, _ = continuous_cells(law._replace(end=start + half), shift, ZERO, ZERO, CELLS)
            *cells, _ = cells
            tail = gaussian_ends(law, start, offset, shift)
    points = atoms(cells)
    losses = [loss for loss, _ in points]

    @cache
    def tilted(theta: Decimal) -> tuple[Decimal, Decimal]:
        """E e^{θL} and, where all of the law is in the cells, the variance of the tilted losses; 0 otherwise."""
        account.takes(ATOM * len(points))
        with localcontext() as context:
            context.prec = DIGITS
            masses = [mass * (theta * loss).exp() for loss, mass in points]
            found = sum(masses, ZERO)
            rounding, variance = Decimal(f"1e-{DIGITS - 6}"), ZERO
            if tail:
                found += tail(theta)
            else:
                first, second = (
                    sum((m * loss**k for m, loss in zip(masses, losses)), ZERO) / found for k in (1, 2)
                )
                variance = max(second * (1 - rounding) - first * first, ZERO)
            return found * (1 + rounding), variance

    return Moments(lambda theta: tilted(theta)[0], lambda theta: tilted(theta)[1], max(losses) - min(losses))


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


def gaussian_ends(law: Law, start: Decimal, offset: Decimal, shift: Decimal) -> Callable[[Decimal], Decimal]:
    """What lies further than `start` from the middle, where the density is ∝ e^(-t²/2 - offset·t) and the loss a line."""
    near, far, loss = start - shift / 2, start + shift / 2, law.loss(start, shift)
    right, left = (law.upper(t) / mills(t + offset) for t in (near, far))

    def moment(theta: Decimal) -> Decimal:
        up, move = (theta * loss).exp(), theta * shift
        return right * up * signed_mills(near + offset - move) + left / up * mills(far + offset + move)

    return moment


def signed_mills(x: Decimal) -> Decimal:
    return mills(x) if x >= 0 else (2 * PI).sqrt() * (x * x / 2).exp() - mills(-x)
