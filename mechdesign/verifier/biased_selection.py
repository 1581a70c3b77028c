"""Biased selection mechanisms: an output on each side of the input by fixed weights, then one of the two by a logistic function.

For x in [B_j, B_{j+1}) a left output l ≤ j and a right one r > j are drawn by their weights, and the answer is B_l with probability
σ = 1/(1 + e^{β(2x − B_l − B_r)}), else B_r. The weights are the selection's doubles, rounded to multiples of 2⁻⁷².

Theorem: between two outputs every p(x, i) is a positive combination of logistic functions that all fall (i on the left) or all rise
in x. So its extremes are at the ends of the stretches between outputs, and max p ≤ e^ε min p there, for every output, is
ε-privacy. The logistic functions are enclosed there to 256 bits: privacy is proved. Bias and loss are recomputed in doubles, the
lower bound follows from multipliers as for every quantizer (`mechdesign.verifier.quantizer_bound`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

from mechdesign.verifier.prior_moments import Moments, rational_prior
from mechdesign.verifier.quantizer_bound import dual_bound
from mechdesign.verifier.quantizer_cost import outputs_of
from mechdesign.verifier.reading import NEAR, Account, Json, Refused, exp_bounds, proofs_of

BITS = 256
WEIGHT = 1 << 72
PANELS = 64
"""Of Simpson's rule, on every stretch between outputs, and for each unit of β times its length."""


def biased_selection(result: Json, account: Account) -> None:
    """Check privacy, bias, value and lower bound of a biased selection mechanism."""
    design, law, value = result["design"], result["mechanism"], result["value"]
    proofs = proofs_of(result)
    if law[""] != "biased-quantizer" or "biased-proof" not in proofs or len(proofs) < len(result["proofs"]):
        raise Refused("a mechanism or evidence that is not of a biased selection")
    selection, beta = law["selection"], law["beta"]
    bins, (lower, upper) = selection["bins"], law["input_range"]
    m = len(bins)
    account.agrees(
        "outputs increase, as many as the design asks",
        all(a < b for a, b in pairwise(bins)) and m == design["m"],
    )
    gap = (bins[-1] - bins[0]) / (m - 1)
    evenly = all(abs(b - bins[0] - k * gap) <= NEAR * abs(gap) for k, b in enumerate(bins))
    centred = abs(bins[0] + bins[-1] - lower - upper) <= NEAR * (bins[-1] - bins[0])
    account.agrees(
        "outputs are evenly spaced about the inputs",
        evenly and centred and bins[0] <= lower < upper <= bins[-1],
    )
    account.agrees("inputs are the design's", design["input_range"] == [lower, upper])
    if not 0 <= beta < math.inf:
        raise Refused("a sharpness that is none")
    left, right = (whole_weights(selection[side], m, account) for side in ("left", "right"))
    knots = [lower, *[b for b in bins if lower < b < upper], upper]
    epsilon = design["privacy"]["epsilon"]
    account.takes(20 * len(knots) * m**2, 1000)
    least, most = extremes(bins, left, right, beta, knots)
    ratio = exp_bounds(min(Fraction(epsilon), 700))
    private = all(high <= ratio[0] * low for low, high in zip(least, most))
    account.proved(f"privacy loss at most {epsilon!r}", private)
    stretches = [Stretch(bins, left, right, beta, ends) for ends in pairwise(knots)]
    account.takes(30 * sum(stretch.panels for stretch in stretches) * m**2 // 4)
    if design["max_bias"] < math.inf:
        off = max(abs(mean - x) for stretch in stretches for x, mean in stretch.means())
        claim = f"bias at most {design['max_bias']!r} on a fine grid"
        account.recomputed(claim, off <= design["max_bias"] * (1 + NEAR / 1000))
    prior = rational_prior(design["prior"])
    claim = f"mean loss at most {value!r}"
    if design["loss"]["function"] is not None or prior is None:
        account.claimed(claim, math.isfinite(value))
    else:
        found = mean_loss(stretches, prior, design["loss"])
        account.recomputed(claim, found <= value + NEAR * found)
    lower_bound(result, proofs, bins, account, ratio[1])


def whole_weights(rows: Json, m: int, account: Account) -> list[list[int]]:
    """Weights of 1, 2, … outputs, as integers; refused unless the doubles are probabilities in a triangle."""
    account.takes(10 * m**2)
    for k, row in enumerate(rows, 1):
        if len(row) != m - 1 or min(row) < 0 or any(row[k:]) or abs(math.fsum(row) - 1) > NEAR:
            raise Refused("selection probabilities that are none")
    if len(rows) != m - 1:
        raise Refused("a selection for other outputs")
    return [[round(Fraction(q) * WEIGHT) for q in row[:k]] for k, row in enumerate(rows, 1)]


def sides(left: list[list[int]], right: list[list[int]], j: int, m: int) -> tuple[list[int], list[int]]:
    """The weights of the j outputs on the left, and of those on the right from the nearest on."""
    return left[j - 1], right[m - j - 1][::-1]


def extremes(
    bins: list[float], left: list[list[int]], right: list[list[int]], beta: float, knots: list[float]
) -> tuple[list[Fraction], list[Fraction]]:
    """The smallest probability of each output from below, the largest from above."""
    m, unit = len(bins), 1 << BITS

    def enclosed(power: Fraction) -> tuple[int, int]:
        low, high = exp_bounds(power)
        return math.floor(low * unit), math.ceil(high * unit)

    factors = [enclosed(-Fraction(beta) * Fraction(b)) for b in bins]
    least, most = [Fraction(1)] * m, [Fraction(0)] * m
    for ends in pairwise(knots):
        j = min(sum(b <= ends[0] for b in bins), m - 1)
        of_left, of_right = sides(left, right, j, m)
        total = sum(of_left) * sum(of_right)
        for x in ends:
            tilt = enclosed(2 * Fraction(beta) * Fraction(x))
            low, high = [0] * m, [0] * m  # in units of 1/unit
            for l, weight in enumerate(of_left):
                for r, other in enumerate(of_right, j):
                    odds = [a * b * c for a, b, c in zip(factors[l], factors[r], tilt)]  # times unit³
                    below = unit**4 // (unit**3 + odds[1])
                    above = unit**4 // (unit**3 + odds[0]) + 1
                    low[l] += weight * other * below
                    high[l] += weight * other * above
                    low[r] += weight * other * (unit - above)
                    high[r] += weight * other * (unit - below)
            least = [min(a, Fraction(n, total * unit)) for a, n in zip(least, low)]
            most = [max(a, Fraction(n, total * unit)) for a, n in zip(most, high)]
    return least, most


class Stretch:
    """A stretch of inputs between two outputs, or the ends of the inputs: the law there, in doubles."""

    def __init__(
        self,
        bins: list[float],
        left: list[list[int]],
        right: list[list[int]],
        beta: float,
        ends: tuple[float, float],
    ) -> None:
        self.bins, self.beta, self.ends, m = bins, beta, ends, len(bins)
        self.split = min(sum(b <= ends[0] for b in bins), m - 1)
        of_left, of_right = sides(left, right, self.split, m)
        self.left, self.right = ([w / sum(side) for w in side] for side in (of_left, of_right))
        self.panels = PANELS * math.ceil(1 + beta * (ends[1] - ends[0]))

    def row(self, x: float) -> list[float]:
        row = [0.0] * len(self.bins)
        for l, weight in enumerate(self.left):
            for r, other in enumerate(self.right, self.split):
                power = self.beta * (2 * x - self.bins[l] - self.bins[r])
                share = 1 / (1 + math.exp(power)) if power < 700 else 0.0
                row[l] += weight * other * share
                row[r] += weight * other * (1 - share)
        return row

    def means(self) -> list[tuple[float, float]]:
        """Inputs of a fine grid with the means of the answers."""
        start, stop = self.ends
        inputs = [start + (stop - start) * k / self.panels for k in range(self.panels + 1)]
        return [(x, math.fsum(b * p for b, p in zip(self.bins, self.row(x)))) for x in inputs]

    def loss(self, x: float, loss: Json) -> float:
        first, second = loss["absolute"], loss["squared"]
        parts = (p * (first * abs(b - x) + second * (b - x) ** 2) for b, p in zip(self.bins, self.row(x)))
        return math.fsum(parts)


def mean_loss(stretches: list[Stretch], prior: Json, loss: Json) -> float:
    """The expected loss under pieces of constant density and point masses, by Simpson's rule."""
    pieces, points = prior
    total: list[float] = []
    for stretch in stretches:
        for a, b, mass in pieces:
            start, stop = max(float(a), stretch.ends[0]), min(float(b), stretch.ends[1])
            if start < stop:
                n = stretch.panels
                values = [stretch.loss(start + (stop - start) * k / (2 * n), loss) for k in range(2 * n + 1)]
                simpson = values[0] + values[-1] + 4 * math.fsum(values[1::2]) + 2 * math.fsum(values[2:-1:2])
                total.append(float(mass / (b - a)) * simpson * (stop - start) / (6 * n))
    for x, mass in points:
        stretch = next((s for s in reversed(stretches) if s.ends[0] <= x), stretches[0])
        total.append(float(mass) * stretch.loss(float(x), loss))
    return math.fsum(total)


def lower_bound(result: Json, proofs: Json, bins: list[float], account: Account, ratio: Fraction) -> None:
    """Add the claim of the lower bound, which holds for every private mechanism within the bias allowed."""
    design, bound = result["design"], result["lower_bound"]
    proof, loss = proofs.get("quantizer-dual-bound"), design["loss"]
    if bound is None:
        return
    if proof is None or proof["duals"]["cap_price"] or loss["function"] is not None:
        raise Refused("a lower bound without multipliers, or with a price of what is not there")
    duals, prior = proof["duals"], design["prior"]
    lower, upper = map(Fraction, design["input_range"])
    held = [Fraction(b) for b in (duals["outputs"] or bins)]
    largest = max(upper - held[0], held[-1] - lower)
    bias = Fraction(min(design["max_bias"], float(largest)))
    moments = Moments(prior, proof["moments"], account)
    ends = lower + bias, upper - bias
    found = dual_bound(duals, list(map(Fraction, bins)), ends, bias, ratio, loss, moments, account)
    claim = f"no mechanism with {outputs_of(duals)}, within the bias allowed, costs less than {bound!r}"
    account.bounds(claim + moments.given, bound, found, moments.room(bound, ratio))
