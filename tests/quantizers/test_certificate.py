"""Certificates: what they prove is true, and nothing false verifies."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from strategies import selections

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.quantizers.moments import BITS, Moments
from mechdesign.quantizers.proofs import expected_upper, worst_upper

UNIFORM = stats.uniform(-1, 2)
CLIPPED = md.clipped(stats.norm(0.3, 0.4), -1, 1)
CASES: dict[str, dict[str, Any]] = {
    "uniform": {"bins": [-3, -0.5, 0.5, 3], "prior": UNIFORM},
    "squared": {"bins": np.linspace(-2.5, 2.5, 16), "prior": UNIFORM, "loss": "squared"},
    "beta": {"bins": [-3, -0.5, 0.6, 3], "prior": stats.beta(2, 3, -1, 2), "loss": {"absolute": 1, "squared": 0.3}},
    "clipped": {"bins": [-2.5, -0.3, 0.4, 2.2], "prior": CLIPPED},
    "truncated": {"bins": [-2.5, -0.3, 0.3, 2.5], "prior": md.truncated(stats.norm(0, 0.4), -1, 1)},
    "samples": {"bins": [-2.5, -0.3, 0.4, 2.2], "prior": [-1, -0.3, 0.2, 0.2, 0.9, 1.0], "input_range": (-1, 1)},
    "symmetric samples": {"bins": [-2.5, -0.3, 0.3, 2.5], "prior": [-1, -0.3, 0, 0.3, 1.0], "input_range": (-1, 1)},
    "many samples": {"bins": np.linspace(-2.5, 2.4, 8), "prior": np.sin(np.arange(60.0)), "input_range": (-1, 1)},
    "histogram": {
        "bins": [-2.5, -0.3, 0.4, 2.2],
        "prior": stats.rv_histogram((np.array([1.0, 3, 2]), np.array([-1, -0.2, 0.3, 1])), density=False)(),
    },
    "worst case": {"bins": [-2.5, -0.3, 0.4, 2.2], "prior": UNIFORM, "objective": "worst"},
    "symmetric worst case": {"bins": [-2.5, -0.3, 0.3, 2.5], "prior": UNIFORM, "objective": "worst", "loss": "squared"},
    "cap": {"bins": np.linspace(-2.5, 2.5, 8), "prior": UNIFORM, "max_mse": 2.0},
    "cap with point masses": {"bins": np.linspace(-2.5, 2.5, 6), "prior": CLIPPED, "max_mse": 2.2},
    "bias": {"bins": [-2.5, -0.3, 0.4, 2.2], "prior": UNIFORM, "max_bias": 0.1},
    "symmetric bias": {"bins": [-2.5, -0.3, 0.3, 2.5], "prior": UNIFORM, "max_bias": 0.3, "loss": "squared"},
    "far from zero": {"bins": [1.7e9 - 3, 1.7e9, 1.7e9 + 3], "prior": stats.uniform(1.7e9 - 1, 2)},
    "two outputs": {"bins": [-2.5, 2.5], "prior": CLIPPED},
}  # fmt: skip


def solved(name: str, epsilon: float = 1.5) -> Any:
    return md.OptimalQuantizer(privacy=md.PureDP(epsilon), **CASES[name]).solve()


@pytest.mark.parametrize("name", CASES)
def test_all_four_are_proved(name: str) -> None:
    """Privacy, bias, value and lower bound: proved, and tight to 1e-11."""
    result = solved(name)
    certificate = result.certificate
    table = certificate.checks()
    assert certificate.verify() and table["holds"].all() and set(table["how"]) == {"proved"}
    # Normal and beta laws are stated too.
    stated = sum(getattr(proof, "moments", None) is not None for proof in certificate.proofs)
    assert stated == 2 * (CASES[name]["prior"] is CLIPPED or name in ("beta", "truncated"))
    assert len(table) == 9 + ("cap" in name) + (stated > 0)  # one claim for both
    # A histogram's moments are floats of quadrature where the design is solved.
    loose = 1e-8 if name == "histogram" else 1e-11
    tight = table["claim"].str.contains("expected loss|worst-case loss|costs less than")
    assert tight.sum() == 2 and table["margin"][tight].max() <= loose * result.value
    assert certificate.value == result.value


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["squared", "cap", "bias", "worst case", "samples", "beta"]))
def test_no_multipliers_prove_too_much(data: st.DataObject, name: str) -> None:
    """Whatever the lines and multipliers are, the bound is below the value of a mechanism that exists."""
    result = solved(name)
    bound, worst, bins = result.proofs[-1], name == "worst case", result.mechanism.law.bins
    held = bound.duals
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    size = data.draw(st.sampled_from([0.0, 1e-6, 1e-2, 1.0]))
    table = held.pieces.copy()
    table[:, 3:] += size * rng.normal(size=(len(table), 4))
    if worst:
        table[:, 3:] = np.repeat(table[:, [3, 5]], 2, axis=1)
    prices = np.abs(held.multipliers + size * rng.normal(size=held.multipliers.shape))
    duals = replace(held, pieces=table, multipliers=prices)
    assert duals.sound(bins, worst=worst)
    assert replace(bound, duals=duals).proved(result.design, bins) <= result.value


@settings(max_examples=40, deadline=None)
@given(selections(most=5), st.sampled_from(["absolute", "squared", {"absolute": 1, "squared": 0.3}]))
def test_exact_losses(drawn: Any, loss: Any) -> None:
    """Against the definition in fractions: the mean over samples, and the largest over a grid."""
    bins, left, right, (lower, upper) = drawn
    mechanism = md.Quantizer.from_selection(bins, left, right, (lower, upper)).certified()
    chosen, samples = md.Loss.of(loss), np.linspace(lower, upper, 7)
    law = mechanism.law

    def at(x: float) -> Fraction:
        exact = Fraction(x)
        k = min(max(sum(exact >= v for v in law.knots) - 1, 0), len(law.knots) - 2)
        t = (exact - law.knots[k]) / (law.knots[k + 1] - law.knots[k])
        row = [(1 - t) * p + t * q for p, q in zip(law.row(k, 0), law.row(k, 1))]
        w1, w2 = Fraction(chosen.absolute), Fraction(chosen.squared)
        return sum(
            (p * (w1 * abs(b - exact) + w2 * (b - exact) ** 2) for b, p in zip(law.bins, row)), Fraction(0)
        )

    mean = sum(map(at, samples.tolist()), Fraction(0)) / len(samples)
    above = expected_upper(law, Moments(md.Prior.of(samples)), chosen) - mean
    assert 0 <= above < Fraction(1, 10**20)
    worst = worst_upper(law, chosen)
    assert all(at(x) <= worst for x in np.linspace(lower, upper, 41).tolist())
    assert float(worst) == pytest.approx(mechanism.worst_case_loss(loss)[0], rel=1e-12)


def beta_density(x: Any) -> Any:
    return (
        ((x + 1) / 2) ** mpmath.mpf(1.5) * ((1 - x) / 2) ** (mpmath.mpf(0.7) - 1) / mpmath.beta(2.5, 0.7) / 2
    )


@pytest.mark.parametrize(
    ("prior", "density"),
    [
        (md.truncated(stats.norm(0.3, 0.4), -0.9, 0.9), lambda x: mpmath.npdf(x, 0.3, 0.4)),
        (md.truncated(stats.norm(-9, 1), -0.9, 0.9), lambda x: mpmath.npdf(x, -9, 1)),
        (md.truncated(stats.beta(2.5, 0.7, -1, 2), -0.9, 0.9), beta_density),
        (md.truncated(UNIFORM, -0.9, 0.9), lambda x: mpmath.mpf(0.5)),
        (md.clipped(UNIFORM, -0.9, 0.9), None),
        (md.clipped(stats.norm(-2.385, 1e-4), -0.9, 0.9), None),
    ],
)
def test_enclosed_moments(prior: Any, density: Any) -> None:
    """Against quadrature with mpmath; together with the point masses they are one."""
    cells = [-0.9, -0.3, 0.2, 0.9]
    moments = Moments(md.Prior.of(prior))
    found = moments.density([Fraction(x) for x in cells])
    masses = [n[0] for n in found] + [weight for _, weight in moments.atoms]
    assert sum(low for low, _ in masses) <= 2**BITS <= sum(high for _, high in masses)
    if density is None:
        return
    with mpmath.workdps(50):
        share = sum(mpmath.quad(density, pair) for pair in zip(cells, cells[1:]))
        ends = [mpmath.mpf(x) for x in cells]
        for (u, v), cell in zip(zip(ends, ends[1:]), found):
            for k, (low, high) in enumerate(cell):
                true = (
                    mpmath.quad(lambda x, k=k, u=u, v=v: density(x) * ((x - u) / (v - u)) ** k, [u, v])
                    / share
                )
                assert low <= true * 2**BITS <= high
                assert 0 <= high - low <= 2 ** (BITS - 90)


@pytest.mark.parametrize("a", [0.05, 0.5, 1.0, 2.5, 30.0, 1000.0])
@pytest.mark.parametrize("b", [0.05, 3.7, 400.5])
def test_beta_moments_are_those_of_mpmath(a: float, b: float) -> None:
    """Summed by a power series."""
    edges = [Fraction(k, 97) for k in (0, 1, 20, 50, 90, 96, 97)]
    cells = Moments(md.Prior.of(stats.beta(a, b))).density(edges)
    with mpmath.workdps(40):
        exact = [
            mpmath.betainc(a, b, 0, mpmath.mpf(x.numerator) / x.denominator, regularized=True) for x in edges
        ]
        for (low, high), u, v in zip((cell[0] for cell in cells), exact, exact[1:]):
            assert low <= (v - u) * 2**BITS <= high
            assert high - low <= 2 ** (BITS - 98)


def test_histograms_are_priors_that_files_keep() -> None:
    counts, edges = np.histogram(np.sin(np.arange(300.0)), 9)
    scaled = stats.rv_histogram((counts, edges), density=True)(loc=0.5, scale=2.0)
    for law in (stats.rv_histogram((counts, edges)), scaled):
        low, high = md.Prior.of(law).support
        result = md.OptimalQuantizer([low - 3, (low + high) / 2, high + 3], md.PureDP(2.0), law).solve()
        text = dumps(result)
        again = loads(text)
        assert dumps(again) == text and again.certificate.verify()
        assert again.design.prior.pdf(low + 0.1) == result.design.prior.pdf(low + 0.1)
        assert set(again.certificate.checks()["how"]) == {"proved"}
