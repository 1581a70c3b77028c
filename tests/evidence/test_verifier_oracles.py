"""The stand-alone check of calibrated noise: sound and doctored files, and its δ against fractions and the package's accounting."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import cheap
import mpmath
import pytest

import mechdesign as md
from mechdesign.accounting import NoiseTerm, delta_interval
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier.calibration import Asked, moments
from mechdesign.verifier.composition import PLACES, POINTS
from mechdesign.verifier.laws import CONTINUOUS, COSTS, discrete_gaussian, mills
from mechdesign.verifier.reading import Account, Refused, read
from mechdesign.verifier.verify import verify

PRIVACY = md.ApproximateDP(1.0, 1e-6)
FAMILIES = [
    "gaussian",
    "laplace",
    "logistic",
    "gennorm",
    "flipped_huber",
    "osgt",
    "truncated_laplace",
    "staircase",
    "discrete_laplace",
    "discrete_gaussian",
]


def refused(result: Result) -> list[str]:
    """Claims that do not hold."""
    return [claim for claim, _, holds in verify(dumps(result)).rows if not holds]


def found(result: Result) -> list[float]:
    """What the stand-alone check says is consumed, on coarse grids and the finest."""
    plain = read(dumps(result))
    design, law = plain["design"], plain["mechanism"]["law"]
    with localcontext() as context:
        context.prec = PLACES
        asked = Asked(
            law["name"],
            tuple(map(Decimal, law["args"])),
            design["rounds"],
            Decimal(design["sampling_rate"]),
            Decimal(design["privacy"]["epsilon"]),
            Decimal(design["privacy"]["delta"]),
            Account(10**9),
        )
        shift = Decimal(design["sensitivity"]) / Decimal(law.get("scale", 1))
        return [float(asked.consumed([(shift, design["dimension"])], points)) for points in POINTS]


@pytest.mark.parametrize("name", ["laplace", "logistic", "osgt", "flipped_huber"])
@pytest.mark.parametrize("theta", [0.01, 20.0])
def test_moments_of_the_loss_are_those_of_a_quadrature(name: str, theta: float) -> None:
    shapes, shift = ((0.7,) if name in ("osgt", "flipped_huber") else ()), 0.8
    largest = Decimal("Infinity") if shapes else Decimal(shift)
    with localcontext() as context:
        context.prec = PLACES
        law = CONTINUOUS[name](*map(Decimal, shapes))
        found = moments(name, tuple(map(Decimal, shapes)), Decimal(shift), largest, Account()).mean(
            Decimal(theta)
        )

        def density(t: mpmath.mpf) -> mpmath.mpf:
            return mpmath.exp(-mpmath.mpf(str(law.exponent(Decimal(str(abs(t)))))))

        ends = [-60, -20, -5, *sorted({0, -shift, 0.7, -0.7, -shift - 0.7, 0.7 - shift}), 5, 10, 20, 30, 60]
        whole = mpmath.quad(density, ends)
        exact = mpmath.quad(lambda t: density(t) ** (1 + theta) * density(t + shift) ** -theta, ends) / whole
    assert exact * (1 - 1e-9) <= mpmath.mpf(str(found)) <= exact * (1 + 1e-4)


@pytest.mark.parametrize("sigma", ["0.3", "17.5", "9000.5"])
def test_delta_of_discrete_gaussian_noise_is_the_sum(sigma: str) -> None:
    """At every ε between two losses, and at a wide law by groups of integers as well."""
    width, shift = Decimal(sigma), 3
    with localcontext() as context:
        context.prec = PLACES
        law = discrete_gaussian(width, Decimal(shift))
        epsilon = Decimal("1.3") / width
        with mpmath.workdps(40):
            weights = [mpmath.exp(-((k / mpmath.mpf(sigma)) ** 2) / 2) for k in range(int(9 * width) + 40)]
            total, growth = 2 * mpmath.fsum(weights) - weights[0], mpmath.exp(mpmath.mpf(str(epsilon)))
            at = math.floor((epsilon * 2 * width * width / shift - shift) / 2) + 1
            masses = [weights[abs(k)] - growth * weights[k + shift] for k in range(at, len(weights) - 4)]
            exact = mpmath.fsum(masses) / total
        found = law.delta(shift, epsilon)
        assert abs(mpmath.mpf(str(found)) / exact - 1) < 1e-12
        cells, infinite = law.cells(shift, 2**14)
        assert len(cells) < 2**16 and infinite < Decimal("1e-30")
        assert abs(sum(cell.p for cell in cells) - 1) < Decimal("1e-30")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES[1:])
@pytest.mark.parametrize(("epsilon", "delta", "dimension"), [(0.3, 1e-5, 5), (2.0, 1e-9, 3), (1.0, 1e-6, 50)])
def test_delta_lies_in_the_interval_of_the_package(
    family: str, epsilon: float, delta: float, dimension: int
) -> None:
    result = md.calibrate(
        family, privacy=md.ApproximateDP(epsilon, delta), sensitivity=1, dimension=dimension
    )
    interval = delta_interval(NoiseTerm(result.mechanism.law, 1.0, dimension), epsilon, width=1e-3)
    *coarse, fine = found(result)
    assert min(*coarse, fine) >= interval.lower * (1 - 1e-9)
    assert fine <= interval.upper * (1 + 1e-4) + 1e-8 * delta  # tails are cut in shares of δ


def test_three_discrete_laplace_coordinates_in_fractions() -> None:
    """The loss of one coordinate is a(1 + 2k) between −a and a: here with e^-a rational."""
    fall = Fraction(1, 2)
    result = md.calibrate("discrete_laplace", privacy=md.ApproximateDP(1.0, 0.05), sensitivity=1, dimension=3)
    law = result.mechanism.law.dist(math.log(2))
    result = replace(result, mechanism=replace(result.mechanism, law=law))
    p = {k: (1 - fall) / (1 + fall) * fall ** abs(k) for k in range(-60, 61)}
    one: dict[Fraction, Fraction] = {}  # by likelihood ratio
    for k in range(-59, 60):
        ratio = p[k] / p[k + 1]
        one[ratio] = one.get(ratio, Fraction(0)) + p[k]
    growth = Fraction(math.exp(1.0))
    exact = sum(
        math.prod(one[r] for r in ratios) * max(1 - growth / math.prod(ratios), 0)
        for ratios in itertools.product(one, repeat=3)
    )
    for delta in found(result):
        assert exact <= Fraction(delta) * (1 + Fraction(1, 10**12)) <= exact * (1 + Fraction(1, 10**6))


@pytest.mark.parametrize("name", sorted(CONTINUOUS))
def test_costs_are_moments_of_the_tails(name: str) -> None:
    shapes = {"osgt": (2,), "flipped_huber": (2,), "gennorm": ("1.5",), "truncated_laplace": (5,)}.get(
        name, ()
    )
    arguments = tuple(Decimal(x) for x in shapes)
    with localcontext() as context:
        context.prec = PLACES
        law, step = CONTINUOUS[name](*arguments), Decimal("0.015")
        for power in (1, 2):
            # ∫ 2p t^(p-1) P(T > t) dt, by the trapezoidal rule
            at = [
                (i * step if power == 2 else 1) * law.upper(i * step)
                for i in range(4000)
                if i * step <= law.end
            ]
            integral = 2 * power * step * (sum(at) - at[0] / 2)
            assert abs(COSTS[name](power, *arguments) / integral - 1) < Decimal("2e-4")


@pytest.mark.parametrize(
    ("family", "args", "scale"),
    [
        ("gennorm", (0.3,), 0.1),
        ("osgt", (-0.5,), 1.0),
        ("flipped_huber", (-0.5,), 1.0),
        ("staircase", (1.0, 1.5), 1.0),
    ],
)
def test_shapes_that_a_family_does_not_have_are_refused(
    family: str, args: tuple[float, ...], scale: float
) -> None:
    """Losses of such densities do not grow away from the middle: they were taken for private."""
    payload = json.loads(dumps(md.calibrate(family, privacy=PRIVACY, sensitivity=1)))["payload"]
    payload["fields"]["mechanism"]["fields"]["law"] |= {
        "args": [*args],
        "kwds": {"$items": [["scale", scale]]},
    }
    with pytest.raises(Refused, match="shape"):
        verify(cheap.sealed(payload))


@pytest.mark.parametrize("rate", ["0.01", "0.3", "0.9"])
@pytest.mark.parametrize("epsilon", ["0.05", "0.5", "1.1"])
def test_one_sampled_round_is_the_worse_of_both_directions(rate: str, epsilon: str) -> None:
    """Of discrete Laplace noise, whose ratios are rational, by all of its outcomes."""
    with localcontext() as context:
        context.prec = PLACES
        q, growth = Decimal(rate), Decimal(epsilon).exp()
        asked = Asked("dlaplace", (Decimal(2).ln(),), 1, q, Decimal(epsilon), Decimal("1e-9"), Account())
        found = asked.consumed([(Decimal(2), 1)], POINTS[0])
        p = {k: Decimal(2) ** -abs(k) / 3 for k in range(-150, 151)}
        pairs = [(p[k], p[k + 2]) for k in range(-150, 149)]
        removed = sum(max(q * a + (1 - q) * b - growth * b, Decimal(0)) for a, b in pairs)
        added = sum(max(a - growth * ((1 - q) * a + q * b), Decimal(0)) for a, b in pairs)
        assert added <= removed
        assert removed <= found <= removed + Decimal("1e-35")


@pytest.mark.parametrize(
    ("noise", "privacy"),
    [("logistic", md.ApproximateDP(3.0, 1e-9)), ("laplace", md.MembershipAdvantage(0.1))],
)
def test_scales_are_ones_that_the_finest_grid_proves(noise: str, privacy: object) -> None:
    assert not refused(md.calibrate(noise, privacy=privacy, sensitivity=1.0, dimension=2))


def test_noise_that_is_all_but_pure_is_checked_at_the_end_of_its_losses() -> None:
    """Where ε is three times the loss at the middle: δ is what lies within 1e-7 of it."""
    changed = md.Sensitivity(linf=1.79, l0=3)
    result = md.calibrate("osgt", privacy=md.ApproximateDP(0.287, 4.4e-8), sensitivity=changed, dimension=20)
    assert result.mechanism.law.args[0] > 100
    assert not refused(result)
    narrower = result.mechanism.law.dist(
        *result.mechanism.law.args, scale=result.mechanism.law.kwds["scale"] * 0.999
    )
    doctored = replace(result, mechanism=replace(result.mechanism, law=narrower))
    assert any("delta at most" in claim for claim in refused(doctored))


@pytest.mark.parametrize("x", ["0", "0.7", "3.99", "4.01", "6", "14", "20", "30", "45", "60"])
def test_the_ratio_of_a_normal_tail_to_its_density_is_that_of_erfc(x: str) -> None:
    with localcontext() as context, mpmath.workdps(80):
        context.prec = PLACES
        at = mpmath.mpf(x)
        exact = mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(at / mpmath.sqrt(2)) * mpmath.exp(at * at / 2)
        assert abs(mpmath.mpf(str(mills(Decimal(x)))) / exact - 1) < mpmath.mpf("1e-46")


@pytest.mark.parametrize("noise", ["laplace", "discrete_laplace"])
@pytest.mark.parametrize("l2", [1.0, 2.5, 4.0])
def test_water_fills_bounds_below_the_norm(noise: str, l2: float) -> None:
    """A norm that some coordinates cannot share evenly: ‖v‖₁ is below √k ‖v‖₂."""
    changed = md.Sensitivity(l2=l2, each=(1, 0, 1, 3, 1, 2))
    result = md.calibrate(noise, privacy=md.PureDP(1.0), sensitivity=changed, dimension=6)
    assert not refused(result)
