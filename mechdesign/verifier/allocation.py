"""Scales of independent noise: what the worst change consumes, what they cost, and the bound by the Lagrangian of their problem.

Scales s of K numbers keep budgets, Σ (|v_i|/s_i)^m ≤ B for every change v, and rows Σ a s + k ≤ 0 or = 0; rows s_i − s_j = 0 join scales into groups, rows of one
group are its limits. For multipliers y ≥ 0 of the budgets and ν of the other rows, and any profile λ of changes or of a mix of them, no scales cost less than

    Σ_g min_s φ_g(s) − Σ y B + Σ ν k,   φ(s) = W s^p + A s^(−m) + d s + c log s,

A the sum of y λ^m in the group, d that of ν a, c that of ±ν where a row a s_g ≤ b s_h is taken as log s_g − log s_h + log(a/b) ≤ 0: so are all of two groups with
opposite signs and no constant, if every other row has coefficients of one sign from above. φ is convex in log s then, and in s where p ≥ 1 and c = 0. With the slope
σ(s) = p W s^p − m A s^(−m) + d s + c and σ(a) ≤ 0 ≤ σ(b), or a and b the limits, min φ ≥ φ(b) − σ(b)(b/a − 1). Decimals carry 55 digits, of
which a sum loses fewer than 15.

A mix is one of changes if x = (λ/a)^m and shares z, x ≤ z ≤ 1, keep the bounds: Σ z ≤ c, Σ a x ≤ L₁, and Σ a² x ≤ L₂², of Laplace noise Σ a² x²/z ≤ L₂².

**Laplace and Gaussian noise.** Moved by v, coordinates of scales s lose what coordinates of scale 1 lose that are moved by v/s. Larger ratios are never more private, so the
worst change moves every coordinate by all it may; under several bounds what counts is the largest Σ (|v_i|/s_i)^m
(`mechdesign.verifier.calibration`): μ² of Gaussian noise, m = 2, and of Laplace noise, m = 1, the largest loss E. Then

- ρ = μ²/2, and δ(ε) is that of one normal coordinate moved by μ;
- δ(ε) ≤ 1 − e^(ε − E) of Laplace noise (Muthukrishnan and Kalyani, Corollary 6), and 1 − e^((ε − E)/2) where one coordinate changes.
- the losses of both types are composed (`mechdesign.verifier.composition`), normal ones as one, of ratio (Σ r²)^½. What is τ-private
  without δ leaves ε − τ to the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from mechdesign.verifier import calibration, reading
from mechdesign.verifier.arithmetic import between, charge, decimal
from mechdesign.verifier.calibration import Changes, Term, changes_of
from mechdesign.verifier.composition import ONE, PI, PLACES, ROUND, SLACK, ZERO, gamma, normal
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, refuse
from mechdesign.verifier.table import MISSED, Own, own_rows, rows_hold, tangents_of

EXACT = 2000
APART = Decimal("1e-10"), Decimal("1e-7"), Decimal("1e-4")


class Need(NamedTuple):
    """A requirement: its privacy, the most that each number changes, and other bounds."""

    privacy: Json
    sizes: list[float]
    bounds: Json


class Question(NamedTuple):
    """What is asked of scales."""

    noise: str
    order: float
    weights: list[float]
    needs: list[Need]
    rows: list[Own]
    curved: Sequence[str] = ()

    @property
    def exponent(self) -> int:
        return 1 if self.noise == "laplace" else 2


def of_problem(design: Json) -> Question:
    """The question of a problem on scales."""
    size, rows = len(design["weights"]), own_rows({**design, "cost": design["weights"]}, 0)
    needs = [Need(one["privacy"], one["sensitivities"], one["bounds"]) for one in design["privacy"]]
    alike = all(one["noise"] == design["noise"] for one in design["privacy"])
    if not needs or not alike or any(len(need.sizes) != size for need in needs):
        raise Refused("requirements of other noise or numbers")
    return Question(design["noise"], design["order"], design["weights"], needs, rows, tangents_of(design))


def of_allocation(design: Json) -> Question:
    """The question of an allocation: limits and groups are rows."""
    sizes, one, minus = design["sensitivities"], Fraction(1), Fraction(-1)
    limited = any(design[name] is not None for name in ("lower", "upper", "groups"))
    if limited and (design["noise"] == "mixed" or design["bounds"] is not None):
        raise Refused("limits of a search over types, or beside several bounds")

    def vector(name: str, otherwise: float) -> list[float]:
        held = otherwise if design[name] is None else design[name]
        found: list[float] = held if isinstance(held, list) else [held] * len(sizes)
        if len(found) != len(sizes) or not reading.lowest(found) >= 0:
            raise Refused(f"{name} of other coordinates than the answer's, or negative")
        return found

    low, high = enumerate(vector("lower", 0.0)), enumerate(vector("upper", math.inf))
    joined = [pair for group in design["groups"] or () for pair in pairwise(group)]
    rows = [Own("lower", False, [(i, minus)], Fraction(v)) for i, v in low if v > 0]
    rows += [Own("upper", False, [(i, one)], -Fraction(v)) for i, v in high if v < math.inf]
    rows += [Own("groups", True, [(i, one), (j, minus)], Fraction(0)) for i, j in joined]
    need = Need(design["privacy"], sizes, design["bounds"])
    return Question(design["noise"], design["loss"], vector("weights", 1.0), [need], rows)


def moment(order: float, laplace: bool) -> Decimal:
    """E|T|^p at scale 1."""
    p = Decimal(order)
    if order == int(order):
        whole = int(order)
        if laplace:
            return Decimal(math.factorial(whole))
        return Decimal(math.prod(range(whole - 1, 0, -2))) * ((2 / PI).sqrt() if whole % 2 else 1)
    if laplace:
        return gamma(p + 1)
    return 2 ** (p / 2) * gamma((p + 1) / 2) / PI.sqrt()


def loss(value: float, scales: list[float], asked: Question, peaked: list[bool], account: Account) -> None:
    """Check that Σ w E|T|^p is at most the value."""
    order, each = asked.order, zip(asked.weights, scales, peaked, strict=True)
    moments = {kind: moment(order, kind) for kind in set(peaked)}
    charge((60 if order == int(order) else 1000) * len(scales))
    total = sum((Decimal(w) * power(Decimal(s), order) * moments[kind] for w, s, kind in each), ZERO)
    # a cost that a double holds exceeds itself by what decimals are rounded up by
    lost = Fraction(2 * (ROUND - 1)) if len(scales) <= EXACT else reading.LOST
    claim = f"the value is at most {value:.12g}"
    account.bounds(claim, Fraction(total * ROUND), value, Fraction(value) * lost)


def power(s: Decimal, order: float) -> Decimal:
    """s^p of s ≥ 0."""
    return s ** int(order) if order == int(order) else s ** Decimal(order) if s else ZERO


@lru_cache(maxsize=32)
def normal_ends(epsilon: Decimal, delta: Decimal) -> tuple[Decimal, Decimal]:
    """μ² of a normal coordinate with this δ at ε, from below and from above."""
    low, high = ZERO, ONE
    while normal_delta(epsilon, high, SLACK) <= delta:
        high *= 2
    low, high = between(low, high, lambda ratio: normal_delta(epsilon, ratio, SLACK) <= delta)
    step = Decimal("1e-30")
    while normal_delta(epsilon, high * (1 + step), -SLACK) <= delta:
        step *= 10
    return low * low / ROUND, (high * (1 + step)) ** 2 * ROUND


def normal_delta(epsilon: Decimal, ratio: Decimal, slack: Decimal) -> Decimal:
    """δ at ε, from above, or below where the slack is negative: a share of the tail, as δ may be less than any absolute one."""
    law = normal()
    near, far = epsilon / ratio - ratio / 2, epsilon / ratio + ratio / 2
    return law.above(near) * (1 + slack) - epsilon.exp() * law.above(far)


def spare_loss(need: Need, delta: float) -> Decimal:
    """How far above ε Laplace losses may be for this δ: twice as far where one coordinate alone changes."""
    alone = sum(size > 0 for size in need.sizes) == 1 or (need.bounds is not None and need.bounds["l0"] == 1)
    return -(1 + alone) * (1 - Decimal(delta)).ln()


def largest_budget(need: Need, laplace: bool) -> Decimal:
    """B, from above."""
    if not laplace:
        return decimal(smallest_beyond(need.privacy))
    return min(Decimal(e) + spare_loss(need, d) * ROUND for e, d in reading.points_of(need.privacy) if d < 1)


def lower_bound(asked: Question, proof: Json, bound: float, value: float, account: Account) -> None:
    """Check that no scales cost less than the bound."""
    size, mixes, shares = len(asked.weights), proof["mixes"], proof["shares"]
    refuse(min(proof["multipliers"]) < 0, "a multiplier of a requirement that is negative")
    profiles = []
    for k, need in enumerate(asked.needs):
        profiles.append(need.sizes)
        changes = None if need.bounds is None else changes_of(need.bounds, size)
        if changes is None or not binding(changes):
            continue
        profiles[k], share = mixes[k], None if shares is None else shares[k]
        reached = is_mix(changes, profiles[k], share, asked.exponent)
        account.add("the worst mix is one of changes", "proved" if size <= EXACT else "recomputed", reached)
        if not reached:
            return
    among = " within these rows" if asked.rows else ""
    claim = f"no scales of this noise{among} cost less than {bound:.12g}"
    charge((100 if asked.order == int(asked.order) else 1000) * size)
    found = separated(asked, proof, profiles, value)
    how = "claimed" if asked.curved else "proved"
    account.at_most(claim, Fraction(bound), min(Fraction(value), Fraction(found)), how)


def binding(changes: Changes) -> bool:
    """Whether bounds on several coordinates exclude changes that those of single ones allow."""
    top = sorted((a for a in changes.sizes if a > 0), reverse=True)
    few = changes.l0 is not None and changes.l0 < len(top)
    top = top[: changes.l0 or len(top)]
    one = changes.l1 is not None and sum(top, Fraction(0)) > changes.l1
    return few or one or (changes.l2 is not None and sum((a * a for a in top), Fraction(0)) > changes.l2**2)


def is_mix(asked: Changes, mix: list[float], shares: list[float] | None, m: int) -> bool:
    """Whether sizes within shares keep the bounds: in fractions, to rounding of more than 2,000."""
    moved = [i for i, (v, _) in enumerate(zip(mix, asked.sizes, strict=True)) if v]
    if not moved or not all(math.isfinite(mix[i]) and mix[i] > 0 and asked.sizes[i] > 0 for i in moved):
        return False
    exact = len(moved) <= EXACT
    room = Fraction(1) + (0 if exact else MISSED)
    v, a = [Fraction(mix[i]) for i in moved], [asked.sizes[i] for i in moved]
    x = [(d / c) ** m for c, d in zip(a, v)]
    few = asked.l0 is not None and asked.l0 < sum(size > 0 for size in asked.sizes)
    z = x if few else [Fraction(1)] * len(x)
    if shares is not None and few and m == 1 and asked.l2 is not None:
        z = [Fraction(shares[i]) for i in moved]
    if not all(low <= share * room and share <= room for low, share in zip(x, z)):
        return False

    def within(terms: list[Fraction], limit: Fraction | int | None) -> bool:
        if limit is None:
            return True
        total = sum(terms, Fraction(0)) if exact else Fraction(math.fsum(map(float, terms)))
        return total <= limit * room

    squares = [d * d / (share if m == 1 else 1) for d, share in zip(v, z)]
    lengths = [c * low for c, low in zip(a, x)]
    return (
        within(z, asked.l0 if few else None)
        and within(lengths, asked.l1)
        and within(squares, asked.l2 and asked.l2**2)
    )


class Reduced(NamedTuple):
    """Groups of scales: of each its members' number, limits; and the rows that are left, over groups."""

    member: list[int]
    low: list[Fraction]
    high: list[Fraction | None]
    coupled: list[tuple[bool, dict[int, Fraction], Fraction]]


def reduced(asked: Question) -> Reduced:
    """Join scales that rows call equal into groups; return these, their limits, and all other rows."""
    root = list(range(len(asked.weights)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for row in asked.rows:
        if row.equal and len(row.terms) == 2 and not row.offset and row.terms[0][1] == -row.terms[1][1]:
            i, j = sorted(find(k) for k, _ in row.terms)
            root[j] = i
    numbers: dict[int, int] = {}
    member = [numbers.setdefault(find(i), len(numbers)) for i in range(len(root))]
    low, high = [Fraction(0)] * len(numbers), list[Fraction | None]([None] * len(numbers))
    coupled = []
    for row in asked.rows:
        terms: dict[int, Fraction] = {}
        for i, a in row.terms:
            terms[member[i]] = terms.get(member[i], Fraction(0)) + a
        terms = {g: a for g, a in terms.items() if a}
        if len(terms) > 1:
            coupled.append((row.equal, terms, row.offset))
        for g, a in terms.items() if len(terms) == 1 else ():
            limit, before = -row.offset / a, high[g]
            if a < 0 or row.equal:
                low[g] = max(low[g], limit)
            if a > 0 or row.equal:
                high[g] = limit if before is None else min(before, limit)
    return Reduced(member, low, high, coupled)


def separated(asked: Question, proof: Json, profiles: list[list[float]], value: float) -> Decimal:
    """Return the bound for scales that cost at most the value, in decimals, less their rounding."""
    laplace = asked.noise == "laplace"
    groups = reduced(asked)
    count = len(groups.low)
    multipliers = proof["rows"] if proof["rows"] is not None else [0.0] * len(groups.coupled)
    ratio = [
        sorted(a > 0 for a in terms.values()) == [False, True] and not k for _, terms, k in groups.coupled
    ]
    from_above = [not equal and min(terms.values()) > 0 for equal, terms, _ in groups.coupled]
    logarithmic = all(one or other for one, other in zip(ratio, from_above))
    if len(multipliers) != len(groups.coupled) or not (logarithmic or asked.order >= 1):
        raise Refused("multipliers of other rows, or a problem that is not convex")
    weight, decay, slope, log = ([ZERO] * count for _ in range(4))
    unit, fixed = moment(asked.order, laplace), list[Decimal]()
    for i, g in enumerate(groups.member):
        weight[g] += unit * Decimal(asked.weights[i])
    for need, y, profile in zip(asked.needs, map(Decimal, proof["multipliers"]), profiles, strict=True):
        fixed.append(-y * largest_budget(need, laplace))
        for g, v in zip(groups.member, profile, strict=True):
            decay[g] += y * Decimal(v) ** asked.exponent
    for (equal, terms, offset), of_two, nu in zip(groups.coupled, ratio, map(Decimal, multipliers)):
        refuse(nu < 0 and not equal, "a multiplier of an inequality that is negative")
        if of_two and logarithmic:
            (b, h), (a, g) = sorted((a, g) for g, a in terms.items())
            log[g], log[h] = log[g] + nu, log[h] - nu
            fixed.append(nu * (decimal(a) / decimal(-b)).ln())
            continue
        fixed.append(nu * decimal(offset))
        for g, factor in terms.items():
            slope[g] += nu * decimal(factor)
    refuse(logarithmic and min(slope) < 0, "multipliers that leave a function which is not convex")
    parts = []
    for g, (low, high) in enumerate(zip(groups.low, groups.high)):
        start, end = decimal(low), None if high is None else decimal(high)
        if slope[g] < 0:  # no scale alone costs more than all
            ceiling = max((Decimal(value) / weight[g]) ** (1 / Decimal(asked.order)) * ROUND, start)
            end = ceiling if end is None else min(end, ceiling)
        phi = Phi(asked.order, asked.exponent, weight[g], decay[g], slope[g], log[g])
        parts.append(phi.least(start, end))
    total = sum(fixed, ZERO) + sum((value for value, _ in parts), ZERO)
    size = sum(map(abs, fixed), ZERO) + sum((most for _, most in parts), ZERO)
    return total - SLACK * size


class Phi(NamedTuple):
    """φ(s) = W s^p + A s^(−m) + d s + c log s."""

    p: float
    m: int
    weight: Decimal
    decay: Decimal
    slope: Decimal
    log: Decimal

    def parts(self, s: Decimal) -> tuple[Decimal, Decimal, Decimal]:
        """φ, σ and the size of their terms."""
        p, m, weight, decay, slope, log = self
        order, rise, fall = Decimal(p), weight * power(s, p), decay / s**m if decay else ZERO
        terms = rise, fall, slope * s, log * s.ln() if log else ZERO
        size = (order + 2) * sum(map(abs, terms), abs(log))
        return sum(terms, ZERO), order * rise - m * fall + slope * s + log, size

    def least(self, low: Decimal, high: Decimal | None) -> tuple[Decimal, Decimal]:
        """Return a lower bound of φ within the limits, and the size of the terms that it sums."""
        if not (self.decay or self.log) and self.slope >= 0:
            value, _, size = self.parts(low)
            return value, size
        start = Decimal(self.root())
        for apart in APART:
            a, b = max(low, start * (1 - apart)), max(low, start * (1 + apart))
            b = b if high is None else min(b, high)
            a = min(a, b)
            if not a:
                break
            (value, rise, size), (_, before, other) = self.parts(b), self.parts(a)
            if (a == low or before <= -SLACK * other) and (b == high or rise >= SLACK * size):
                return value - max(rise, ZERO) * (b / a - 1), 2 * size
        raise Refused("multipliers that prove nothing")

    def root(self) -> float:
        """Where σ is 0, in doubles."""
        p, m, (weight, decay, slope, log) = self.p, self.m, map(float, self[2:])
        rises, falls = math.log(p * weight), math.log(m * decay) if decay else -math.inf
        if not slope and not log:
            return math.exp((falls - rises) / (p + m))

        def down(u: float) -> bool:
            top = max(rises + p * u, falls - m * u, u)
            turn = math.exp(rises + p * u - top) - math.exp(falls - m * u - top)
            return turn + slope * math.exp(u - top) + log * math.exp(min(-top, 700.0)) < 0

        return math.exp(between(-700.0, 700.0, down)[1])


def allocation(result: Json, account: Account) -> None:
    design, law, scales = result["design"], result["mechanism"], result["mechanism"]["scales"]
    asked = (of_problem if design[""] == "scales-problem" else of_allocation)(design)
    proof, needs, order, size = (
        reading.proofs_of(result).get("allocation-proof"),
        asked.needs,
        asked.order,
        len(scales),
    )
    if type(order) not in (int, float) or not 0 < order <= 100:
        raise NotCovered("losses that are no power from 0 to 100")
    mixed = law[""] == "mixed-noise"
    noise = "mixed" if mixed else law["noise"]
    peaked = law["laplace"] if mixed else [noise == "laplace"] * size
    alike = noise == asked.noise and (mixed or noise in ("laplace", "gaussian"))
    account.agrees("the noise is the design's", alike and len(asked.weights) == size == len(peaked))
    account.agrees("sensitivities are not negative", all(min(need.sizes) >= 0 for need in needs))
    own = any(law["sensitivities"] == n.sizes and law.get("bounds") == n.bounds for n in needs)
    account.agrees("the noise is made for the changes that the design states", own)
    sure = min(scales) >= 0 and all(s > 0 or not l for need in needs for s, l in zip(scales, need.sizes))
    account.proved("every sensitive coordinate has noise", sure)
    account.agrees("weights are of the coordinates", min(asked.weights) > 0)
    if not sure or not own or not alike or size != len(asked.weights):
        return
    if len(needs) > 1:
        stated = Need(None, law["sensitivities"], law["bounds"])
        room = 2.0**-50  # two that are the same may round apart
        widest = max(widened(need, scales, asked.exponent) for need in needs) - room
        claim = "the lattice is paid for under every requirement"
        account.at_most(claim, widest, widened(stated, scales, asked.exponent), "recomputed")
    for k, need in enumerate(needs):
        private(asked.noise, need, proof, k, scales, peaked, account)
    # equalities hold to 1e-12 of their size
    labels = dict.fromkeys([*(row.label for row in asked.rows), *asked.curved])
    rows_hold(asked.rows, labels, [Fraction(s) for s in scales], account, asked.curved)
    loss(result["value"], scales, asked, peaked, account)
    if design[""] == "noise-allocation" and design["groups"] is not None:
        account.agrees(
            "groups part the coordinates", sorted(reading.flat(design["groups"])) == list(range(size))
        )
    if result["lower_bound"] is not None:
        refuse(mixed, "a lower bound of a search over types, which has none")
        lower_bound(asked, proof, result["lower_bound"], result["value"], account)


def widened(need: Need, scales: list[float], m: int) -> float:
    """Return the factor by which noise on multiples of 2⁻³⁰ of each scale is wider."""
    ratios = [l / s for l, s in zip(need.sizes, scales) if l]
    if need.bounds is None:
        wanted, spent = (math.fsum((r + step) ** m for r in ratios) for step in (2.0**-29, 0.0))
        return float((wanted / spent) ** (1 / m))
    count = min(need.bounds["l0"] or len(ratios), len(ratios))
    return 1 + 2.0**-29 * float(count ** (1 / m)) / max(ratios)


def private(
    noise: str, need: Need, proof: Json, k: int, scales: list[Json], peaked: list[bool], account: Account
) -> None:
    """Check that the worst change keeps the budget."""
    privacy, lam, several = need.privacy, need.sizes, need.bounds
    ratios = [(Fraction(l) / Fraction(s), kind) for l, s, kind in zip(lam, scales, peaked) if l]
    m = 1 if all(peaked) else 2
    changes = None if several is None else changes_of(several, len(lam))
    if changes is not None:
        account.agrees("sensitivities are those of the bounds", [Fraction(l) for l in lam] == changes.sizes)
        refuse(proof is None or noise == "mixed", "several bounds without a proof of what they consume")
    prices = None if proof is None or proof["prices"] is None else proof["prices"][k]

    def left_of(budget: Fraction) -> Fraction:
        if changes is None or prices is None:
            return calibration.left_of_total([ratio**m for ratio, _ in ratios], budget)
        return calibration.left_of_budget(changes, [Fraction(s) for s in scales], m, prices, budget)

    if noise == "mixed" and any(peaked):
        sizes = Counter(Decimal(rounded_up(r)) for r, kind in ratios if kind)
        laplace = Term("laplace", (), sorted(sizes.items(), reverse=True))
        rest = Term("norm", (), [(decimal(r), 1) for r, kind in ratios if not kind])
        calibration.consumed([[term] for term in (laplace, rest) if term.shifts], privacy, account)
    elif privacy[""] == "pure-dp" and m == 1:
        epsilon = privacy["epsilon"]
        account.at_most(f"privacy loss at most {epsilon!r}", 0, left_of(Fraction(epsilon)))
    elif not any(peaked):
        words = [f"{name} at most {privacy[name]!r}" for name in ("rho", "mu") if name in privacy]
        words = words or [f"delta at most {d!r} at epsilon = {e!r}" for e, d in reading.points_of(privacy)]
        account.at_most("; ".join(words), 0, left_of(largest_square(privacy)))
    elif privacy[""] in ("approximate-dp", "membership-advantage", "trade-off"):
        for e, d in reading.points_of(privacy):
            if d == 1:
                continue
            left = left_of(Fraction(Decimal(e) + spare_loss(need, d) / ROUND))
            account.at_most(f"delta at most {d!r} at epsilon = {e!r}", 0, left)
    else:
        raise Refused(f"{noise} noise under {privacy['']}")


def rounded_up(ratio: Fraction) -> float:
    """Round a ratio up to 48 bits: those that differ only by the rounding of their scales are composed as one."""
    mantissa, exponent = math.frexp(ratio)
    found = math.ldexp(math.ceil(mantissa * 2.0**48), exponent - 48)
    return found if Fraction(found) >= ratio else math.nextafter(found, math.inf)


def largest_square(privacy: Json, side: int = 0) -> Fraction:
    """μ² that Gaussian noise may consume, from below; from above with `side` 1."""
    if privacy[""] == "zcdp":
        return 2 * Fraction(privacy["rho"])
    if privacy[""] == "gaussian-dp":
        return Fraction(privacy["mu"]) ** 2
    points = reading.points_of(privacy)
    refuse(not all(0 < d < 1 for _, d in points), "Gaussian noise under pure privacy")
    with localcontext(prec=PLACES):
        return min(Fraction(normal_ends(Decimal(e), Decimal(d))[side]) for e, d in points)


def smallest_beyond(privacy: Json) -> Fraction:
    """μ² at which some δ is exceeded."""
    return largest_square(privacy, 1)
