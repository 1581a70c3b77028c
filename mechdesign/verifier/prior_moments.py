"""The prior of an input: its masses and moments on stretches of inputs, and its point masses.

Theorem: where an expected loss is a quadratic a + bt + ct² on the stretch [u, v], t = (x − u)/(v − u), its mean over the stretch is
a ∫dF + b ∫t dF + c ∫t² dF. So three numbers of the prior for each stretch are all that an expectation takes.

Uniform laws, histograms (clipped to a range or truncated, too) and samples have rational moments, computed here. Of every other law
the file states enclosures in units of 2⁻¹⁶⁰; what follows from them is proved. That they are the law's is proved of normal and beta laws
(`mechdesign.verifier.law_moments`), of others it is claimed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from mechdesign.verifier.law_moments import ends_hold, known_moments, stretches_hold
from mechdesign.verifier.reading import Account, Json, Refused

UNIT = 1 << 160
"""Masses and moments are stated in units of 1/UNIT."""

Span: TypeAlias = tuple[Fraction, Fraction]
Bounds: TypeAlias = tuple[Fraction, Fraction]
Piece: TypeAlias = tuple[Fraction, Fraction, Fraction]
"""Start, stop and mass of a piece of constant density."""
Rational: TypeAlias = tuple[list[Piece], list[tuple[Fraction, Fraction]]]
"""Pieces of constant density, and point masses."""


def rational_prior(prior: Json) -> Rational | None:
    """The prior as pieces and point masses; None where they are not rational."""
    if prior[""] == "prior-samples":
        counts = Counter(map(Fraction, prior["samples"]))
        return [], [(x, Fraction(n, counts.total())) for x, n in sorted(counts.items())]
    pieces = rational_law(prior["law"])
    if pieces is None or prior[""] == "prior-law":
        return None if pieces is None else (pieces, [])
    low, high = Fraction(prior["lower"]), Fraction(prior["upper"])
    inside: list[Piece] = [
        (max(a, low), min(b, high), mass * overlap(a, b, low, high) / (b - a)) for a, b, mass in pieces
    ]
    held = sum((mass for *_, mass in inside), Fraction(0))
    if prior[""] == "prior-truncated":
        return [(a, b, mass / held) for a, b, mass in inside], []
    below = sum((mass * overlap(a, b, a, low) / (b - a) for a, b, mass in pieces), Fraction(0))
    return inside, [(low, below), (high, 1 - below - held)]


def overlap(a: Fraction, b: Fraction, low: Fraction, high: Fraction) -> Fraction:
    """How much of [a, b] is in [low, high]."""
    return max(min(b, high) - max(a, low), Fraction(0))


def rational_law(law: Json) -> list[Piece] | None:
    """Uniform laws and histograms, as pieces."""
    if law["name"] == "uniform":
        named = [key for key in law if key not in ("", "name", "args")]
        if len(law["args"]) > 2 or not {*named} <= {*("loc", "scale")[len(law["args"]) :]}:
            raise Refused("a uniform law of other parameters than a place and a scale")
        given = {"loc": 0, "scale": 1, **law, **dict(zip(("loc", "scale"), law["args"]))}
        return [(Fraction(given["loc"]), Fraction(float(given["loc"]) + given["scale"]), Fraction(1))]
    if law["name"] != "histogram":
        return None
    contents, edges, density = law["args"]
    edges = [Fraction(law["loc"]) + Fraction(law["scale"]) * Fraction(x) for x in edges]
    stretches = list(pairwise(edges))
    masses = [Fraction(n) * (b - a if density else 1) for n, (a, b) in zip(contents, stretches, strict=True)]
    total = sum(masses)
    return [(a, b, mass / total) for mass, (a, b) in zip(masses, stretches)]


class Moments:
    """∫ t^k dF over stretches of inputs, k = 0, 1, 2 and t from 0 to 1, and point masses, as pairs of bounds."""

    def __init__(self, prior: Json, stated: Json, account: Account) -> None:
        self.exact, self.stated, self.account = rational_prior(prior), stated, account
        if self.exact is not None:
            if stated is not None:
                raise Refused("moments are stated of a prior whose own are rational")
            pieces, points = self.exact
            account.takes(20 * (len(pieces) + len(points)))
            self.stops = [b for _, b, _ in pieces]
            self.atoms = [(x, (mass, mass)) for x, mass in points]
            return
        if stated is None:
            raise Refused("the masses and moments of this prior are missing")
        self.known = known_moments(prior, account)
        self.claim = len(account.rows)
        account.given(f"the masses and moments stated are those of the prior ({prior['law']['name']})")
        ends, masses = (prior.get("lower"), prior.get("upper")), pairs(stated["masses"])
        if len(masses) != (2 if prior[""] == "prior-clipped" else 0):
            raise Refused("point masses that the prior has not, or too few")
        self.atoms = [(Fraction(x), mass) for x, mass in zip(ends, masses)]
        if self.known is not None:
            self.found(not masses or ends_hold(self.known, prior, masses))

    def found(self, holds: bool) -> None:
        """Whether the bounds looked at hold what they are bounds of."""
        claim, how, so_far = self.account.rows[self.claim]
        self.account.agreeing += how == "claimed"
        self.account.rows[self.claim] = (claim, "proved", so_far and holds)

    @property
    def places(self) -> list[Fraction]:
        """Where the point masses are, in order."""
        return [x for x, _ in self.atoms]

    def over(self, spans: list[Span], name: str) -> list[list[Bounds]]:
        """Bounds of the three moments on each stretch: computed, or those that are stated under this name."""
        if self.exact is not None:
            return [self.integral(u, v) for u, v in spans]
        bounds = pairs(self.stated[name])
        if len(bounds) != 3 * len(spans):
            raise Refused(f"moments stated of other {name}")
        stated = [bounds[k : k + 3] for k in range(0, len(bounds), 3)]
        if self.known is not None:
            self.found(stretches_hold(self.known, spans, stated, self.account))
        return stated

    def integral(self, u: Fraction, v: Fraction) -> list[Bounds]:
        assert self.exact is not None
        pieces, total = self.exact[0], [Fraction(0)] * 3
        first = bisect_right(self.stops, u)
        last = bisect_left(self.stops, v) + 1
        self.account.divides(30 * (1 + min(last, len(pieces)) - first), u.denominator.bit_length())
        for a, b, mass in pieces[first:last]:
            if mass and max(a, u) < min(b, v):
                s, t = (max(a, u) - u) / (v - u), (min(b, v) - u) / (v - u)
                height = mass * (v - u) / (b - a)
                total = [n + height * (t**k - s**k) / k for k, n in enumerate(total, 1)]
        return [(n, n) for n in total]


def pairs(numbers: list[int]) -> list[Bounds]:
    """Lower and upper bounds that follow each other."""
    bounds = [
        (Fraction(a, UNIT), Fraction(b, UNIT)) for a, b in zip(numbers[::2], numbers[1::2], strict=True)
    ]
    if any(low > high for low, high in bounds):
        raise Refused("a lower bound of a mass or moment above the upper one")
    return bounds
