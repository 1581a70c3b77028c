"""The stand-alone check of noise: sound and doctored files, and its numbers against fractions, other computations and the package."""

import itertools
import json
import math
import random
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import cheap
import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import arithmetic, composition
from mechdesign.verifier.allocation import largest_square
from mechdesign.verifier.calibration import Term, delta_on
from mechdesign.verifier.composition import DECISIVE, PLACES, POINTS, discrete_gaussian, mills
from mechdesign.verifier.gaussian import Changed, falling, largest_change
from mechdesign.verifier.reading import Reader, Refused, TooLarge
from mechdesign.verifier.verify import verify
from tests.programs import refused

PRIVACY = md.ApproximateDP(1.0, 1e-6)


def found(result: md.Result) -> list[float]:
    """What the stand-alone check says is consumed, on coarse grids and the finest."""
    plain = Reader().read(dumps(result))
    design, law = plain["design"], plain["mechanism"]["law"]
    with localcontext() as context:
        context.prec = PLACES
        shift = Decimal(design["sensitivity"]) / Decimal(law.get("scale", 1))
        shapes, rate = tuple(map(Decimal, law["args"])), Decimal(design["sampling_rate"])
        term = Term(law["name"], shapes, [(shift, design["dimension"])], design["rounds"], rate)
        asked = [Decimal(design["privacy"][name]) for name in ("epsilon", "delta")]
        grids = [points for points in POINTS if points <= DECISIVE]
        return [float(delta_on([term], *asked, points)) for points in grids]


@pytest.mark.parametrize("sigma", ["0.3", "17.5", pytest.param("9000.5", marks=pytest.mark.slow)])
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
        found = Term("discrete_gaussian", (width,), [(Decimal(shift), 1)]).alone(epsilon)
        assert abs(mpmath.mpf(str(found)) / exact - 1) < 1e-12
        cells, infinite = law.cells(shift, 2**14, epsilon)
        assert len(cells) < 2**16 and infinite < Decimal("1e-30")
        assert abs(sum(cell.p for cell in cells) - 1) < Decimal("1e-30")


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


@pytest.mark.parametrize(
    ("family", "privacy", "changes"),
    [
        ("discrete_gaussian", md.ApproximateDP(50, 1e-12), {}),
        ("discrete_gaussian", md.ApproximateDP(165, 1e-29), {"sensitivity": 100}),
        ("discrete_gaussian", md.ZeroConcentratedDP(300), {}),
        ("staircase", md.ApproximateDP(0.021307884974414708, 1.53e-30), {"sensitivity": 2, "dimension": 2}),
    ],
)
def test_calibrated_noise_of_steep_losses_holds(
    family: str, privacy: object, changes: dict[str, int]
) -> None:
    """Of few whole numbers, of which δ takes tails times e^ε, and of losses that all end at ε, where δ is 0."""
    noise = md.calibrate(family, privacy=privacy, **{"sensitivity": 1, **changes})
    assert all(holds for *_, holds in verify(dumps(noise)).rows)


@pytest.mark.parametrize("name", sorted(composition.CONTINUOUS))
def test_costs_are_moments_of_the_tails(name: str) -> None:
    shapes = {"osgt": (2,), "flipped_huber": (2,), "gennorm": ("1.5",), "truncated_laplace": (5,)}.get(
        name, ()
    )
    arguments = tuple(Decimal(x) for x in shapes)
    with localcontext() as context:
        context.prec = PLACES
        law, step = composition.CONTINUOUS[name](*arguments), Decimal("0.015")
        for power in (1, 2):
            # ∫ 2p t^(p-1) P(T > t) dt, by the trapezoidal rule
            at = [
                (i * step if power == 2 else 1) * law.upper(i * step)
                for i in range(4000)
                if i * step <= law.end
            ]
            integral = 2 * power * step * (sum(at) - at[0] / 2)
            assert abs(composition.COSTS[name](power, *arguments) / integral - 1) < Decimal("2e-4")


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
        term = Term("dlaplace", (Decimal(2).ln(),), [(Decimal(2), 1)], 1, q)
        found = delta_on([term], Decimal(epsilon), Decimal("1e-9"), POINTS[0])
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


@pytest.mark.parametrize("x", ["0", "0.7", "3.99", "4.01", "6", "14", "20", "30", "45", "60"])
def test_the_ratio_of_a_normal_tail_to_its_density_is_that_of_erfc(x: str) -> None:
    with localcontext() as context, mpmath.workdps(80):
        context.prec = PLACES
        at = mpmath.mpf(x)
        exact = mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(at / mpmath.sqrt(2)) * mpmath.exp(at * at / 2)
        assert abs(mpmath.mpf(str(mills(Decimal(x)))) / exact - 1) < mpmath.mpf("1e-46")


# -- The stand-alone check of correlated Gaussian noise, counts and strategies: sound and doctored files, other computations, the package


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_the_largest_change_is_that_of_all_corners(seed: int) -> None:
    rnd = random.Random(seed)
    size, rows = rnd.randint(1, 5), rnd.randint(1, 4)
    most, signed = rnd.randint(1, size), rnd.random() < 0.5
    matrix = [[rnd.randint(-9, 9) for _ in range(size)] for _ in range(rows)]
    gram = [[sum(row[i] * row[j] for row in matrix) for j in range(size)] for i in range(size)]
    corners = itertools.product((-1, 0, 1) if signed else (0, 1), repeat=size)
    best = max(
        sum(sum(x * d for x, d in zip(row, corner)) ** 2 for row in matrix)
        for corner in corners
        if sum(map(abs, corner)) <= most
    )
    assert largest_change(gram, Changed(most, signed)) == best


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31))
def test_where_coefficients_fall_the_first_pattern_is_the_worst(seed: int) -> None:
    """Kalinin and Lampert's theorem, against the list."""
    rnd = random.Random(seed)
    size, apart = rnd.randint(1, 8), rnd.randint(1, 4)
    most, fixed = rnd.randint(1, -(-size // apart)), rnd.random() < 0.5
    asked = Changed(most, rnd.random() < 0.5, apart, apart if fixed else 1, rnd.random() < 0.5)
    falls = sorted((rnd.randint(0, 5) for _ in range(size)), reverse=True)
    matrix = [[falls[t - j] if j <= t else 0 for j in range(size)] for t in range(size)]
    gram = [[sum(row[i] * row[j] for row in matrix) for j in range(size)] for i in range(size)]
    assert falling(matrix)
    first = sum(sum(row[: most * apart : apart]) ** 2 for row in matrix)
    assert first == largest_change(gram, asked)
    if size > 1:
        matrix[1] = [falls[0] + 1, falls[0], *matrix[1][2:]]
        assert not falling(matrix)


def test_the_budget_is_the_root_of_the_profile() -> None:
    """By the profile of a normal coordinate in 40 digits."""
    import mpmath

    with mpmath.workdps(40):
        mu = mpmath.sqrt(
            mpmath.mpf(float(largest_square({"": "approximate-dp", "epsilon": 1.0, "delta": 1e-6})))
        )
        tail = [mpmath.erfc(-z / mpmath.sqrt(2)) / 2 for z in (mu / 2 - 1 / mu, -mu / 2 - 1 / mu)]
        assert abs((tail[0] - mpmath.e * tail[1]) / mpmath.mpf(1e-6) - 1) < 1e-12
    assert largest_square({"": "zcdp", "rho": 0.25}) == Fraction(1, 2)


# -- The stand-alone check of optimal noise for several numbers: sound and doctored files --------------------


def test_a_named_law_for_one_number_is_bounded_as_any_noise() -> None:
    found = md.compare(
        md.NumericQuery(),
        md.PureDP(1.0),
        mechanisms=["laplace", "staircase", "optimal noise"],
        progress=False,
    )["optimal noise"]
    assert isinstance(found.mechanism, md.noise.AdditiveNoise) and found.status.value == "optimal"
    claim = f"no additive noise for a real-valued query costs less than {found.lower_bound!r}"
    assert (claim, "proved", True) in verify(dumps(found)).rows and found.certificate.verify()
    raised = replace(found, lower_bound=found.lower_bound * (1 + 1e-9), value=found.value * (1 + 1e-9))
    assert any("costs less" in claim for claim in refused(raised))


# -- The stand-alone check of allocated noise: sound and doctored files, and its δ and its worst change against other computations


def test_delta_of_two_laplace_coordinates_by_quadrature() -> None:
    import mpmath

    one, other, epsilon = 0.9, 0.4, 0.3

    def mass(ratio: float) -> list[tuple[float, float]]:
        return [(ratio, 0.5), (-ratio, 0.5 * math.exp(-ratio))]

    def curve(level: mpmath.mpf, ratio: float) -> mpmath.mpf:
        if level >= ratio:
            return mpmath.mpf(0)
        return 1 - mpmath.exp(level) if level <= -ratio else 1 - mpmath.exp((level - ratio) / 2)

    # δ(ε) = E over the first loss of δ₂(ε − l)
    exact = mpmath.fsum(m * curve(epsilon - loss, other) for loss, m in mass(one))
    density = lambda loss: mpmath.exp((loss - one) / 2) / 4  # noqa: E731
    kinks = sorted({-one, one, *(k for k in (epsilon - other, epsilon + other) if abs(k) < one)})
    exact += mpmath.quad(lambda loss: density(loss) * curve(epsilon - loss, other), kinks)
    with localcontext() as context:
        context.prec = PLACES
        terms = [Term("laplace", (), [(Decimal(ratio), 1)]) for ratio in (one, other)]
        found = delta_on(terms, Decimal(epsilon), Decimal(str(exact)), DECISIVE)
    assert exact <= mpmath.mpf(str(found)) <= exact * (1 + 1e-5)


# -- The stand-alone check of K-norm noise: sound and doctored files, and the largest norms against a search and the package

# -- The stand-alone checks of vectors and of biased selection: what is altered is refused, and closed forms are the package's


@pytest.mark.parametrize(
    ("limit", "seconds", "holds"),
    [("0.000999", 5.0, True), ("0.000999", 0.1, None), ("0.001", 5.0, None), ("0.00102", 5.0, False)],
)
def test_finer_grids_decide_or_it_is_said_that_none_did(
    limit: str, seconds: float, holds: bool | None
) -> None:
    """Honest sampled calibrations did not hold: coarse grids told too large a limit, and no time was left for finer ones."""

    def consumed(points: int) -> Decimal:
        arithmetic.charge(points)
        return Decimal(limit) + Decimal("0.0026") * (Decimal(1024) / points) ** Decimal("1.5")

    with arithmetic.allowed(seconds * arithmetic.OPERATIONS):
        if holds is None:
            with pytest.raises(TooLarge, match="too large to check"):
                composition.refined(consumed, Decimal("0.001"))
        else:
            assert (composition.refined(consumed, Decimal("0.001")) <= Decimal("0.001")) is holds


def test_honest_sampled_noise_holds_by_default() -> None:
    """At δ = 1e-9 it did not: cells were chosen as if a round saw everybody."""
    asked = md.ApproximateDP(1.37, 1e-9)
    result = md.calibrate("gaussian", privacy=asked, sensitivity=1.0, rounds=73, sampling_rate=0.0076)
    assert all(holds for *_, holds in verify(dumps(result)).rows)
