"""Noise that falls with a norm, under pure privacy or what that implies.

**Theorem** (Hardt and Talwar 2010). Of density ∝ e^(−‖z‖/s) a change v loses (‖z + v‖ − ‖z‖)/s ≤ ‖v‖/s, by the triangle inequality; of density
∝ e^(−Δj/s) on the shells γ + j − 1 < ‖z‖/Δ ≤ γ + j it loses Δ/s at most where ‖v‖ ≤ Δ. So what counts is the largest norm of a change: its ℓ₁, ℓ₂ or
ℓ_∞ norm, for |v_i| ≤ b_i of at most c coordinates, ‖v‖₁ ≤ L₁, ‖v‖₂ ≤ L₂. The largest ‖v‖₁ under L₂ alone is, whatever t > 0, at most
Σ (v − v²/2t) + L₂²/2t, v = min(b_i, t): weak duality. Of max(max |z_i|/w_i, Σ|z_i|/(w_i c)) it is at most Δ if |v_i| ≤ w_i Δ and Σ|v_i|/w_i ≤ cΔ; of
max z⁺ + max z⁻ the largest |v_i| where all entries rise or all fall. Of a hull the norm is the largest of |z_i|/w_i and |n·(z/w)| over its faces n·u = 1: whatever
these are, a change has the norm that it is found to have, in rational numbers. So it has of planes n around a hull of too many faces, of which no moments are known:
where a change v has the norm t, the mass of the body beyond z_i falls no faster than that of a double cone of height |v_i|/t, as its root of order d − 1 is concave (Brunn and
Minkowski), so that E|z_i|^p is at least p! (s |v_i|/t)^p, that of Laplace noise for v_i alone.

**Theorem** [ours]. Of density ∝ e^(−‖z‖₂) in d ≥ 2 dimensions a change of norm t has the loss ηt, where η on [−1, 1] has the density
∝ e^(xη) (1 − η²)^((d−3)/2) (1 − η²/ρ), x = t/2, ρ = 1 + (d − 1)/x · K_{d/2}(x)/K_{d/2−1}(x). Proof: the distances to the two centres add to tξ and differ by tη;
volume is ∝ ((ξ² − 1)(1 − η²))^((d−3)/2) (ξ² − η²) dξ dη and the density e^(−x(ξ − η)), so that ρ is the mean of ξ². δ(ε) = E (1 − e^(ε − ηt))⁺ grows with t, as
1 − δ is an integral of volumes in which balls about the two centres overlap. r rounds at (ε/r, δ/r) each are (ε, δ)-DP together (Dwork et al. 2006). The moments ∫ η^j (1 − η²)^((d−3)/2) beyond ε/t follow from the first two by parts, and
K_{ν+1}/K_ν = 2ν/x + K_{ν−1}/K_ν from 1 at ν = −½, or from K₁/K₀ by the trapezoidal rule for ∫ e^(−x cosh u) cosh(nu) du, which steps of 1/(16 + x) make right to
e^(−2π(16 + x)) times its integrand's growth 1 off the real line, at most e^(x/2) (1 + 2/x). Sums carry digits for what cancels, e^t, and 30 more.

**Cost.** z = R u, u uniform on the ball, so that E|z_i|^p = E|u_i|^p E R^p: E R^p is (d + 1)…(d + p) s^p, or Δ^p S_{d+p}/S_d with
S_n = Σ_j e^(−Δj/s) (j + γ)^n. Of {|u_i| ≤ 1, Σ|u_i| ≤ c} volume and moments are sums of (−1)^i C(n, i) (c − i)^n. A hull is made of simplices F from 0 over its faces, if their cones fill all directions equally often: every
ridge, F without a vertex, has as many on one side as on the other. On the cone of F the norm lies between n_F·z and 1 + η times it, η how far a vertex is beyond a face,
so that E|u_i|^p of the simplices is right to (1 + η)^d from above and (1 + η)^(d+2) from below. With values h_i at the vertices, of a simplex
(d + 1)(d + 2) E h² = (Σ h_i)² + Σ h_i², and (d + 1) E max(h, 0) is the divided difference of x₊^(d+1) (Hermite and Genocchi).

**Lower bound** (Melbourne, Diaz and Asoodeh 2026). No noise whose density falls with the norm costs less than the best staircase; where the cost grows with the
norm, no additive noise. That S_{d+p} ≥ b S_d for all γ is shown in cells, by expansions to the second order: S_n' = n S_{n−1}, and all S_n increase.
By Poisson's formula S_n = e^(εγ) n!/ε^(n+1) times a number at most 2 Σ |1 + 2πim/ε|^(−n−1) from 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations, product
from math import comb
from operator import mul
from typing import Any, NamedTuple

from mechdesign.verifier import calibration
from mechdesign.verifier.arithmetic import between, charge, hypergeometric, root_above
from mechdesign.verifier.calibration import widths
from mechdesign.verifier.composition import HALF, ONE, PI, PLACES, left_after
from mechdesign.verifier.reading import LOST, Account, Json, Refused, refuse

NEARLY = 1 - 10 * LOST
"""The share of a lower bound that is shown: sums of doubles show no more."""
LEAST_SUM = 1e-280  # below which a double keeps too few digits of a sum over its largest term
MOST_LEVELS = 20_000
MOST_CAPPED, MOST_ROUND, MOST_LISTED, LEAST_KEPT = 400, 2000, 12, 1e-4
SUMMED = 1 + Decimal("1e-25")
"""Above the rounding of sums of decimals."""


class Shape(NamedTuple):
    """A norm: its order, c, whether changes are signed, and the widths of the coordinates that get noise (None: all 1)."""

    norm: float
    cap: Fraction | None = None
    signed: bool = True
    widths: tuple[Fraction, ...] | None = None
    hull: Hull | None = None


class Planes:
    """The norm that is the largest |n·z|/s over planes n, s; of a file's planes, multiples of 2⁻²⁴. `sound` if it is one."""

    sound = True

    def __init__(self, law: Json) -> None:
        self.rows: list[tuple[list[int], int]] = [(plane, 2**24) for plane in law["planes"] or ()]
        self.work, self.bits = 0.25, 0  # of a product with one of 24 bits, and of its digits

    def most(self, points: list[list[Fraction]]) -> Fraction:
        """The largest norm of points."""
        charge(self.work * len(self.rows) * len(points) * len(points[0]), self.bits)
        top = Fraction(0)
        for point in points:
            over = math.lcm(*(x.denominator for x in point))
            whole = [int(x * over) for x in point]
            for normal, size in self.rows:
                found = abs(sum(map(mul, normal, whole)))
                if found * top.denominator > top.numerator * size * over:
                    top = Fraction(found, size * over)
        return top


class Hull(Planes):
    """The norm of the hull of a law's vertices and their negatives, by its faces; `sound` if ridges have as many on either side."""

    def __init__(self, law: Json) -> None:
        super().__init__(law)
        exact = [[Fraction(x) for x in v] for v in law["vertices"]]
        ordered = [sorted(face, key=abs) for face in law["simplices"]]
        self.d, faces = len(exact[0]), [face if face[0] > 0 else [-i for i in face] for face in ordered]
        self.unit = max(x.denominator for v in exact for x in v)
        self.whole = [[int(x * self.unit) for x in v] for v in exact]
        bits = math.log2(self.unit)
        charge(1.5 * len(faces) * self.d**3, round(bits * self.d / 2))
        self.work, self.bits = 1.0, round(bits * self.d)
        self.sizes, self.corners = list[int](), list[list[list[int]]]()
        sides = Counter[tuple[int, ...]]()
        for face in faces:
            corner = [[x if i > 0 else -x for x in self.whole[abs(i) - 1]] for i in face]
            size, normal = solved([[*v, self.unit] for v in corner])
            self.corners.append(corner)
            self.sizes.append(abs(size))
            self.rows.append((normal, abs(size)))
            for p in range(self.d):
                rest, turn = tuple(face[:p]) + tuple(face[p + 1 :]), (-1) ** p if size > 0 else -((-1) ** p)
                sides[rest] += turn
                sides[tuple(-i for i in rest)] += turn * (-1) ** self.d
        once = len({tuple(face) for face in faces}) == len(faces)
        self.sound = once and all(self.sizes) and not any(sides.values())

    @cached_property
    def slack(self) -> Fraction:
        """1 + η."""
        return max(self.most([[Fraction(x, self.unit) for x in v] for v in self.whole]), Fraction(1))

    def moments(self, order: int) -> list[Fraction]:
        """E|u_i|^p of every coordinate, of the simplices."""
        total = [Fraction(0)] * self.d
        charge(len(self.rows) * self.d**2 * (1 if order == 2 else 2.5 * self.d), self.bits)
        for size, corner in zip(self.sizes, self.corners):
            for j, column in enumerate(zip(*corner)):
                if order == 2:
                    total[j] += size * (sum(column) ** 2 + sum(x * x for x in column))
                else:
                    total[j] += size * (2 * rising(column) - sum(column))
        scale = sum(self.sizes) * math.prod(self.unit * (self.d + p) for p in range(1, order + 1))
        return [x / scale for x in total]


def solved(rows: list[list[int]]) -> tuple[int, list[int]]:
    """The determinant of all columns but the last, and it times what they make the last of (Bareiss)."""
    rows, last, sign = [list(row) for row in rows], 1, 1
    for k in range(len(rows)):
        p = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if p is None:
            return 0, []
        if p != k:
            rows[p], rows[k], sign = rows[k], rows[p], -sign
        top, pivot = rows[k], rows[k][k]
        for i, row in enumerate(rows):
            if i != k:
                rows[i] = [(pivot * x - row[k] * y) // last for x, y in zip(row, top)]
        last = pivot
    return sign * last, [sign * row[-1] for row in rows]


def rising(column: tuple[int, ...]) -> Fraction:
    """(d + 1) E max(h, 0) of h on a simplex, 0 at a vertex: the divided difference of x₊^(d + 1), whole over numbers of one sign."""
    x, power = sorted((*column, 0)), len(column) + 1
    found: list[Any] = [max(a, 0) ** power for a in x]
    for k in range(1, power):
        ends = zip(x, x[k:], found, found[1:])
        found = [
            comb(power, k) * max(a, 0) ** (power - k)
            if a == b
            else (after - before) // (b - a)
            if a >= 0 or b <= 0
            else Fraction(after - before, b - a)
            for a, b, before, after in ends
        ]
    return Fraction(found[0])


def knorm(result: Json, account: Account) -> None:
    design, law, k = result["design"], result["mechanism"], result["design"]["dimension"]
    changes = design["sensitivity"]
    if isinstance(changes, dict) and design["neighbours"] not in ("add-remove", changes["neighbours"]):
        raise Refused("bounds for other neighbours than the design's")
    norm, cap, gamma = law["norm"], law["cap"], law["gamma"]
    listed = isinstance(design["sensitivity"], list)
    hulled = law["vertices"] is not None or law["planes"] is not None
    plain = cap is None and law["signed"] and law["widths"] is None and not hulled
    account.agrees("the noise is for the design's numbers", law["dimension"] == k)
    allowed = (
        norm in (1, 2, math.inf)
        and design["norm"] in (None, norm)
        and ((plain and not listed) or design["norm"] is None)
    )
    if law["vertices"] is not None and not listed:
        changes = corners_listed(changes, k)
    allowed = allowed and (isinstance(changes, list) if hulled else plain or not listed)
    account.agrees("the norm is one that is allowed", allowed and fits(law))
    if not all(holds for *_, holds in account.rows):
        return
    bounds, l1, l2 = (bounds_of_list if listed else calibration.bounds_of)(design["sensitivity"], k)
    charge(10 * len(bounds) + (0 if plain else 10 * k), 3000)
    charge(16 * k if design["loss"] == "absolute" else 0)
    scale, largest = Fraction(law["scale"]), Fraction(law["largest"])
    widths = law["widths"] and tuple(map(Fraction, law["widths"]))
    hull = Hull(law) if law["vertices"] else None
    shape = Shape(norm, cap and Fraction(cap), law["signed"], widths, hull)
    if hull is not None:
        account.agrees("the faces are all that the hull has", hull.sound)
        account.agrees("the vertices of the hull are changes", of_the_list(law, changes))
    if hulled:
        body = hull or Planes(law)
        top = reached_by_list(widths, body, changes, k) if body.sound else Fraction(0)
        beyond = largest - top if top > 0 else Fraction(-1)
    elif plain:
        beyond = largest - calibration.reached(norm, bounds, l1, l2)
    else:
        beyond = beyond_hull(shape, design["sensitivity"], k, largest)
    account.at_most(f"no change has a norm above {law['largest']!r}", 0, beyond)
    if beyond < 0:
        return
    within_budget(design, largest / scale, norm == 2 and gamma is None, account)
    if law["planes"] is not None:
        simulated_error(result, scale / largest, account)
        return
    costs(result, shape, largest, account)
    if result["lower_bound"] is not None:
        tried = [(shape, top)] if shape.hull else []
        tried += plain_and_hulls(design, bounds, l1, l2)
        least(result, account, tried)


def costs(result: Json, shape: Shape, largest: Fraction, account: Account) -> None:
    """Check the error that is stated of noise of a norm."""
    design, law, stated = result["design"], result["mechanism"], result["value"]
    k, order = design["dimension"], 2 if design["loss"] == "squared" else 1
    size, scale = moving(shape, k), Fraction(law["scale"])
    claim = f"the {design['loss']} error is at most {stated!r}"
    if law["gamma"] is None:
        radial = math.prod(size + i for i in range(1, order + 1)) * scale**order
        account.costs(claim, unit(shape, k, design["loss"]) * radial, stated)
    else:
        stairs = Stairs(size, float(largest / scale))
        found = stairs.moment(order, law["gamma"]) * unit(shape, k, design["loss"]) * largest**order
        account.at_most(claim, found, stated * (1 + LOST), "recomputed")


def within_budget(design: Json, loss: Fraction, radial: bool, account: Account) -> None:
    """Check the budget of rounds that lose at most `loss` each; exponential ℓ₂ noise may also keep it by its δ."""
    rounds = design["rounds"]
    claim = f"privacy losses of at most {float(rounds * loss):.9g} are"
    left = left_after(design["privacy"], rounds * loss)
    if left < 0 and radial and counts_delta(design):
        epsilon, most = profile(design)
        claim = f"delta at epsilon = {float(epsilon)!r}{' in each round' if rounds > 1 else ''} is"
        left = Fraction(most - round_delta(design["dimension"], loss, epsilon) * SUMMED)
    account.at_most(f"{claim} private as asked", 0, left)


def simulated_error(result: Json, scale: Fraction, account: Account) -> None:
    """Claim an error that is simulated, and check that it is at least what each coordinate's largest change implies."""
    refuse(result["lower_bound"] is not None, "a bound of noise whose moments are simulated")
    design, stated = result["design"], result["value"]
    k, order = design["dimension"], 2 if design["loss"] == "squared" else 1
    each = (max(abs(Fraction(v[i])) for v in design["sensitivity"]) for i in range(k))
    spent = math.factorial(order) * sum(x**order for x in each) * scale**order / k
    claim = f"the {design['loss']} error is at most {stated!r}, simulated: that it is at least {float(spent):.6g} is proved"
    account.claimed(claim, spent <= stated, stated - spent)


def of_the_list(law: Json, vectors: Json) -> bool:
    """Whether all vertices are changes over the widths, to rounding, so that the hull is no larger than that of the list."""
    widths = law["widths"] or [1.0] * law["dimension"]
    known = {tuple(s * x / w for x, w in zip(v, widths) if w) for v in vectors for s in (1, -1)}
    return all(tuple(v) in known for v in law["vertices"])


def bounds_of_list(vectors: Json, dimension: int) -> tuple[calibration.Bounds, Fraction, Fraction]:
    """The largest change of a coordinate, and the largest ℓ₁ and ℓ₂ norm of a listed change, the last rounded up."""
    sizes = [[abs(Fraction(x)) for x in v] for v in vectors]
    if any(len(v) != dimension for v in sizes):
        raise Refused("changes of another length than the answer's")
    l2 = root_above(max(sum((x * x for x in v), Fraction(0)) for v in sizes))
    return [(max(map(max, sizes)), dimension)], max(sum(v, Fraction(0)) for v in sizes), l2


def reached_by_list(
    stated: tuple[Fraction, ...] | None, body: Planes, vectors: Json, dimension: int
) -> Fraction:
    """The largest norm of a listed change; 0 where one moves a coordinate without noise."""
    widths = stated or (Fraction(1),) * dimension
    if any(len(v) != dimension or any(x and not w for x, w in zip(v, widths)) for v in vectors):
        return Fraction(0)
    units = [[Fraction(x) / w for x, w in zip(v, widths) if w] for v in vectors]
    return max(body.most(units), *(abs(x) for u in units for x in u))


def plain_and_hulls(
    design: Json, bounds: calibration.Bounds, l1: Fraction | None, l2: Fraction | None
) -> list[tuple[Shape, Fraction]]:
    """Return the norms that a design tries, each with the largest norm of a change."""
    allowed = (1.0, 2.0, math.inf) if design["norm"] is None else (design["norm"],)
    tried = [(Shape(n), calibration.reached(n, bounds, l1, l2)) for n in allowed]
    if design["norm"] is None and design["dimension"] > 1 and not isinstance(design["sensitivity"], list):
        tried += hulls(design["sensitivity"], design["dimension"])
    return tried


def corners_listed(sensitivity: Json, dimension: int) -> list[list[float]] | None:
    """List the corners of few coordinates that change; None if other bounds cut them off."""
    if not isinstance(sensitivity, dict) or sensitivity["l1"] is not None or sensitivity["l2"] is not None:
        return None
    each = widths(sensitivity, dimension)
    charge(10 * dimension * box(each, sensitivity)[2])
    return [[*map(float, corner)] for corner in corners(each, sensitivity)]


def named(shape: Shape) -> str:
    """The norm, shortly."""
    name = f"{shape.norm:g}" if shape.signed else "inf of what rises plus that of what falls"
    name += "" if shape.cap is None else f" and 1 over {float(shape.cap)!r}, the larger"
    name = name if shape.hull is None else f"of a hull of {len(shape.hull.rows)} pairs of faces"
    return name if shape.widths is None else f"{name}, in units of the widths"


def least(result: Json, account: Account, tried: list[tuple[Shape, Fraction]]) -> None:
    """Check that no radial noise of these norms costs less: the best staircase of each, at its least scale from below."""
    design, bound = result["design"], Fraction(result["lower_bound"])
    k, order = design["dimension"], 2 if design["loss"] == "squared" else 1
    epsilon, left = most_epsilon(design["privacy"]), math.inf
    for shape, largest in tried:
        stairs = Stairs(moving(shape, k), epsilon / design["rounds"])
        asked = float(bound * NEARLY / largest**order / unit(shape, k, design["loss"]))
        asked *= float(shape.hull.slack) ** (2 * moving(shape, k) + 2) if shape.hull else 1.0
        left = min(left, stairs.left_above(order, asked) * float(bound) / (asked or 1.0))
        if bound and shape.norm == 2 and counts_delta(design):
            radial = bound * NEARLY / unit(shape, k, design["loss"])
            scale = float(radial / math.prod(k + i for i in range(1, order + 1))) ** (1 / order)
            counted, most = profile(design)
            found = round_delta(k, largest / Fraction(scale), counted)
            left = left if found > most * SUMMED else -float(bound)
    names = "; ".join(named(shape) for shape, _ in tried)
    claim = f"no radial noise of norm {names} costs less than {result['lower_bound']!r}"
    account.at_most(claim, 0.0, left, "recomputed")


def fits(law: Json) -> bool:
    """Whether cap, widths and first level are of a norm and of a staircase."""
    widths, cap, gamma, k = law["widths"], law["cap"], law["gamma"], law["dimension"]
    if widths is not None and (len(widths) != k or not 0 <= min(widths) <= max(widths) < math.inf):
        return False
    size = k if widths is None else sum(w > 0 for w in widths)
    hull = cap is None or (
        law["signed"] and 1 < cap < size <= MOST_CAPPED and not math.frexp(cap)[0] * 2**12 % 1
    )
    if law["vertices"] is not None or law["simplices"] is not None:
        vertices, faces = law["vertices"] or [], law["simplices"] or []
        known = set(range(1, len(vertices) + 1))
        hull = hull and cap is None and law["signed"] and 1 < size <= MOST_LISTED and bool(vertices and faces)
        hull = hull and all(len(v) == size and all(abs(x) <= 1 for x in v) for v in vertices)
        hull = hull and all(len(f) == size == len({abs(i) for i in f} & known) for f in faces)
        hull = hull and {abs(i) for f in faces for i in f} == known
    if law["planes"] is not None:
        cube = [[2**24 * (i == j) for j in range(size)] for i in range(size)]
        hull = cap is None and law["signed"] and law["vertices"] is None and size > 1
        hull = hull and law["planes"][:size] == cube and all(len(n) == size for n in law["planes"])
    if k * law["scale"] > 1e150:
        return False
    levels = (24 * math.sqrt(size + 2) + 120) * law["scale"] / (law["largest"] or math.nan) + 8
    stairs = gamma is None or (
        levels <= MOST_LEVELS and 0 < gamma < 1 and not math.frexp(gamma)[0] * 2**20 % 1
    )
    bare = cap is None and law["signed"] and law["vertices"] is None and law["planes"] is None
    return size > 0 and hull and stairs and (bare or law["norm"] == math.inf)


def counts_delta(design: Json) -> bool:
    """Whether exponential noise of norm 2 is private by its δ, where its losses are too large."""
    asked = design["privacy"][""] == "approximate-dp" and design["privacy"]["delta"] > 0
    return asked and design["norm"] in (None, 2) and 1 < design["dimension"] <= MOST_ROUND


def profile(design: Json) -> tuple[Decimal, Decimal]:
    """Return ε and δ that noise of norm 2 must keep in each round."""
    privacy, rounds = design["privacy"], design["rounds"]
    with localcontext(prec=2 * PLACES):
        epsilon, delta = min(privacy["epsilon"], 64.0), min(privacy["delta"], 0.5)
        return Decimal(epsilon) / rounds, Decimal(delta) / rounds


def round_delta(d: int, change: Fraction, epsilon: Decimal) -> Decimal:
    """δ at ε of the density ∝ e^(−‖z‖₂) for a change of this norm."""
    size = min(change, Fraction(10**9))
    charge(100 * (d + 8 * (128 + float(size))), 4 * int(size) + 300)
    with localcontext(prec=PLACES + math.ceil(change)):
        t = Decimal(change.numerator) / change.denominator
        x, edge, half = t / 2, epsilon / t, Decimal(d - 1) / 2
        if edge >= 1:
            return Decimal(0)
        thin, left = 1 / (1 + (d - 1) / x * ratio_of_bessels(d, x)), 1 - edge**2
        rim = left**half / (PI * ratio_of_gammas(d - 1))
        if edge**2 < min(HALF, Decimal(64) / d):
            first = HALF - rim * edge * hypergeometric(half + HALF, 3 * HALF, edge**2)
        else:
            first = rim * edge / (d - 1) * hypergeometric(half + HALF, half + 1, left)
        beyond, every, term = (first, rim / (d - 1)), (ONE, Decimal(0)), ONE
        above, whole, most = Decimal(0), Decimal(0), epsilon.exp()
        for j in range(128 + 4 * math.ceil(change)):
            rim *= edge
            later = (rim + (j + 1) * beyond[0]) / (j + d), (j + 1) * every[0] / (j + d)
            above += term * (1 - (-1) ** j * most) * (beyond[0] - later[0] * thin)
            whole += term * (every[0] - later[1] * thin)
            beyond, every, term = (beyond[1], later[0]), (every[1], later[1]), term * x / (j + 1)
        return above / whole


def ratio_of_bessels(d: int, x: Decimal) -> Decimal:
    """K_{d/2}(x)/K_{d/2−1}(x)."""
    found = ONE
    if d % 2 == 0:
        step, point = (ONE / (16 + math.ceil(x))).exp(), ONE
        sums = [HALF, HALF]
        while (rise := x * ((point := point * step) + 1 / point - 2) / 2) < 150:
            sums = [f + (-rise).exp() * g for f, g in zip(sums, (ONE, (point + 1 / point) / 2))]
        found = sums[1] / sums[0]
    for n in range(2 - d % 2, d - 1, 2):
        found = n / x + 1 / found
    return found


def most_epsilon(privacy: Json) -> float:
    """The largest loss that is implied, to rounding, from above."""
    most = 1.0
    while left_after(privacy, Fraction(most)) >= 0:
        most *= 2
    return between(0.0, most, lambda loss: left_after(privacy, Fraction(loss)) >= 0)[1] * (1 + 1e-14)


def beyond_hull(shape: Shape, sensitivity: Json, dimension: int, largest: Fraction) -> Fraction:
    """Return the slack of the largest norm over all changes, negative if one has a larger norm: of a norm with a cap, with widths or for changes of one sign."""
    if not shape.signed and (not isinstance(sensitivity, dict) or sensitivity["signed"]):
        return Fraction(-1)
    units = shape.widths or (Fraction(1),) * dimension
    pairs = list(zip(widths(sensitivity, dimension), units, strict=True))
    left = min(w * largest - b for b, w in pairs)
    if left < 0 or shape.cap is None:
        return left
    # Σ|v_i|/w_i is at most the largest of b_i/w_i, times the share
    most = max(b / w for b, w in pairs if w)
    return min(left, shape.cap * largest - share(sensitivity, dimension) * most)


def share(sensitivity: Json, dimension: int) -> Fraction:
    """Return the largest Σ |v_i|/b_i of a change v, b_i the bounds of the coordinates."""
    sizes = sorted(b for b in widths(sensitivity, dimension) if b)
    if not isinstance(sensitivity, dict):
        return Fraction(len(sizes))
    found = Fraction(min(sensitivity["l0"] or len(sizes), len(sizes)))
    if sensitivity["l1"] is not None:
        left, filled = Fraction(sensitivity["l1"]), Fraction(0)
        for size in sizes:
            filled, left = filled + min(left / size, Fraction(1)), left - min(left, size)
        found = min(found, filled)
    if sensitivity["l2"] is not None:
        squares = math.fsum(float(Fraction(sensitivity["l2"]) / size) ** 2 for size in sizes)
        found = min(found, Fraction(math.sqrt(squares) * (1 + 1e-14)))
    return max(found, Fraction(1))


def box(each: list[Fraction], asked: Json) -> tuple[list[int], Iterable[int], int]:
    """Which coordinates move, how many of them in a corner, and how many corners there are, up to sign."""
    moved = [i for i, size in enumerate(each) if size]
    count = min(asked["l0"] or len(moved), len(moved))
    if asked["l1"] is not None and all(each[i] == asked["l1"] for i in moved):
        count = 1  # the corners of the ℓ₁ ball
    sizes, signs = (range(count, count + 1), 2) if asked["signed"] else (range(1, count + 1), 1)
    return moved, sizes, sum(comb(len(moved), c) * signs ** (c - 1) for c in sizes)


def corners(each: list[Fraction], asked: Json) -> Iterator[tuple[Fraction, ...]]:
    """The corners of a box, of which so many coordinates change."""
    moved, sizes, _ = box(each, asked)
    for count in sizes:
        for places in combinations(moved, count):
            for signs in product((1, -1) if asked["signed"] else (1,), repeat=count):
                yield tuple(dict(zip(places, signs)).get(i, 0) * size for i, size in enumerate(each))


def hulls(sensitivity: Json, dimension: int) -> list[tuple[Shape, Fraction]]:
    """The norms beyond the plain ones that a design tries, and the largest norm of a change."""
    each = calibration.coordinates(sensitivity)
    widths = tuple(each) if max(each) > min(each) else None
    top, found = Fraction(1) if widths else each[0], []
    size = sum(b > 0 for b in each) if widths else dimension
    if widths:
        found.append((Shape(math.inf, widths=widths), top))
    if isinstance(sensitivity, dict) and not sensitivity["signed"] and size > 1:
        found.append((Shape(math.inf, signed=False, widths=widths), top))
    if size <= MOST_CAPPED:
        most = share(sensitivity, dimension)
        grain = Fraction(2) ** (math.frexp(float(most))[1] - 12)
        cap = math.ceil(most / grain) * grain
        if 1 < cap < size:
            volume = folded(size, cap, 1) - folded(size, cap - 1, 1)
            if float(volume * max(Fraction(1), math.factorial(size) / cap**size)) >= LEAST_KEPT:
                found.append((Shape(math.inf, cap, widths=widths), top))
    return found


@lru_cache(64)
def folded(dimension: int, t: Fraction, times: int) -> Fraction:
    """The density at t of the sum of d − 1 uniform numbers, integrated so often."""
    power, over, under = dimension - 1 + times, t.numerator, t.denominator
    terms = range(min(dimension - 1, over // under) + 1) if over > 0 else ()
    total = sum((-1) ** i * comb(dimension - 1, i) * (over - i * under) ** power for i in terms)
    return Fraction(total, under**power * math.factorial(power))


def moving(shape: Shape, dimension: int) -> int:
    """How many coordinates get noise."""
    return dimension if shape.widths is None else sum(w > 0 for w in shape.widths)


@lru_cache(64)
def unit(shape: Shape, dimension: int, loss: str) -> Fraction:
    """E|u_i|^p of a uniform point of the ball, times the mean of w_i^p."""
    d, order = moving(shape, dimension), 2 if loss == "squared" else 1
    mean = Fraction(1)
    if shape.hull is not None:
        widths = [w for w in shape.widths or (mean,) * dimension if w]
        sums = sum(m * w**order for m, w in zip(shape.hull.moments(order), widths, strict=True))
        return sums * shape.hull.slack**d / dimension
    if shape.widths is not None:
        mean = Fraction(math.fsum(float(w) ** order for w in shape.widths) * (1 + 1e-15)) / dimension
    if shape.cap is not None:
        c = shape.cap
        near, far = ([folded(d, t, m) for m in (1, 2, 3)] for t in (c, c - 1))
        first, second = near[1] - far[1] - far[0], 2 * (near[2] - far[2] - far[1]) - far[0]
        return mean * (first if order == 1 else second) / (near[0] - far[0])
    if not shape.signed:
        return mean * (Fraction(d + 2, 3 * (d + 1)) if order == 1 else Fraction(d + 3, 6 * (d + 1)))
    if shape.norm == 1:
        return mean * (Fraction(1, d + 1) if order == 1 else Fraction(2, (d + 1) * (d + 2)))
    if shape.norm == 2:
        return mean * (d * Fraction(ratio_of_gammas(d)) / (d + 1) if order == 1 else Fraction(1, d + 2))
    return mean / (order + 1)


def ratio_of_gammas(k: int) -> Decimal:
    """Γ(k/2)/(√π Γ((k + 1)/2)): 1 for k = 1, and for k and k + 1 together 2/πk."""
    with localcontext(prec=PLACES):
        found = ONE
        for j in range(1, k):
            found = 2 / (PI * j * found)
    return found


class Stairs:
    """The sums S_n of d coordinates at this ε, and E R^p at Δ = 1."""

    def __init__(self, dimension: int, epsilon: float) -> None:
        self.dimension, self.epsilon = dimension, epsilon
        self.spread = (12 * math.sqrt(dimension + 2) + 60) / epsilon + 4

    def start(self) -> None:
        d, centre = self.dimension, self.dimension / self.epsilon
        charge(10 * self.spread)
        self.places = range(max(0, math.floor(centre - self.spread)), math.ceil(centre + self.spread) + 1)
        self.top = max(d * math.log(j + 1) - self.epsilon * j for j in self.places)

    def sums(self, gamma: float, *orders: int) -> list[float]:
        """S_n(γ), all over one number that does not depend on γ."""
        charge(2 * len(self.places))
        found, d = [0.0] * len(orders), self.dimension
        for j in self.places:
            x = j + gamma
            if not x:
                found = [f + (n == 0) * math.exp(-self.top) for f, n in zip(found, orders)]
                continue
            term = math.exp(d * math.log(x) - self.epsilon * j - self.top)
            found = [f + term * x ** (n - d) for f, n in zip(found, orders)]
        return found

    def moment(self, order: int, gamma: float) -> float:
        self.start()
        above, below = self.sums(gamma, self.dimension + order, self.dimension)
        refuse(below <= LEAST_SUM, "a first level that no double resolves at this scale")
        return above / below

    def ripple(self, n: int) -> float:
        turn = 2 * math.pi / self.epsilon
        near = math.fsum(math.exp(-(n + 1) / 2 * math.log1p((turn * m) ** 2)) for m in range(1, 65))
        return 2 * (near + math.exp(min(-n * math.log(64 * turn) - math.log(turn * n), 700.0)))

    def left_above(self, order: int, bound: float) -> float:
        """How far E R^p of every staircase is above a bound; negative where that is not shown."""
        d, n, epsilon = self.dimension, self.dimension + order, self.epsilon
        flat = math.prod((d + i) / epsilon for i in range(1, order + 1))
        plain = max(0.0, flat * (1 - self.ripple(n)) / (1 + self.ripple(d)))
        if bound <= plain or bound > flat:
            return plain - bound
        self.start()
        left = flat - bound
        cells = [(0.0, 1.0)]
        while cells:
            low, high = cells.pop()
            middle, half = (low + high) / 2, (high - low) / 2
            here, slope, below, fall = self.sums(middle, n, n - 1, d, d - 1)
            value, slope = here - bound * below, n * slope - bound * d * fall
            bend = n * (n - 1) * self.sums(low, n - 2)[0]
            bend -= bound * d * (d - 1) * self.sums(high, d - 2)[0] if d > 1 else 0.0
            turn = min(max(-slope / bend, -half), half) if bend > 0 else math.copysign(half, -slope)
            least = value + slope * turn + bend * turn**2 / 2
            if below <= LEAST_SUM or not least >= 1e-12 * bound * below:
                if half < 1e-9:
                    return -bound
                cells += [(low, middle), (middle, high)]
            else:
                left = min(left, least / below)
        return left
