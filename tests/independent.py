"""A second implementation of the selection family, in fractions and from the formulas of the paper alone."""

from fractions import Fraction


def probabilities(
    bins: list[Fraction], left: list[list[Fraction]], right: list[list[Fraction]], x: Fraction, j: int
) -> list[Fraction]:
    """p(x, ·) on the interval j (1-based), left[n-1][i-1] = q^L_n(i) and right likewise."""
    m = len(bins)
    p = [Fraction(0)] * m
    for l in range(1, j + 1):
        for r in range(j + 1, m + 1):
            pair = left[j - 1][l - 1] * right[m - j - 1][m - r]
            up = (x - bins[l - 1]) / (bins[r - 1] - bins[l - 1])
            p[l - 1] += pair * (1 - up)
            p[r - 1] += pair * up
    return p


def check_selection_law(law, rho: Fraction) -> bool:
    """Whether the weights of a selection law give rows that sum to 1, are unbiased, and respect the ratio ρ."""
    bins = list(law.bins)
    m = len(bins)
    left = [[Fraction(w, sum(row)) for w in row] for row in law.left]
    right = [[Fraction(w, sum(row)) for w in row] for row in law.right]
    low, high = [None] * m, [Fraction(0)] * m
    for j in range(1, m):
        a, b = max(bins[j - 1], law.lower), min(bins[j], law.upper)
        if a >= b:
            continue
        for x in (a, b):
            p = probabilities(bins, left, right, x, j)
            if sum(p) != 1 or sum(v * q for v, q in zip(bins, p)) != x or min(p) < 0:
                return False
            low = [q if v is None else min(v, q) for v, q in zip(low, p)]
            high = [max(v, q) for v, q in zip(high, p)]
    return all(h <= rho * v for h, v in zip(high, low))
