"""Directions from a shared seed against a scalar program written from their definition alone, and against the uniform law."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.exact import exp_upper
from mechdesign.evidence.serialize import dumps
from mechdesign.vectors.design import cap_error
from mechdesign.vectors.directions import direction_words, directions, nearest
from mechdesign.vectors.sphere import top_sum, vertex_products, weighted_sums
from mechdesign.verifier import vectors as alone
from mechdesign.verifier.verify import verify
from tests.campaign.vector_oracles import nearest_moments

LOW = (1 << 64) - 1


def philox(key: int, counter: tuple[int, ...]) -> list[int]:
    """A block of Philox4x64-10 (Salmon, Moraes, Dror, Shaw 2011)."""
    (k, l), (a, b, c, d) = (key & LOW, key >> 64), counter
    for _ in range(10):
        one, two = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = two >> 64 ^ b ^ k, two & LOW, one >> 64 ^ d ^ l, one & LOW
        k, l = (k + 0x9E3779B97F4A7C15) & LOW, (l + 0xBB67AE8584CAA73B) & LOW
    return [a, b, c, d]


def direction(dimension: int, seed: int, vector: int, code: int) -> list[float]:
    """The definition, one number after the other."""
    pairs = (dimension + 1) // 2
    tries = 3 * pairs // 2 + 64
    blocks = -(-(pairs - 1 + tries) // 4)

    def words() -> Iterator[int]:
        for j in range(1, blocks + 1):
            yield from philox(seed, (code * blocks + j, 0, vector, 0))

    held = words()
    marks = sorted(next(held) >> 11 for _ in range(pairs - 1))
    shares = [b - a for a, b in zip([0, *marks], [*marks, 1 << 53])]
    points: list[tuple[int, int, int]] = []
    spare = tries - pairs
    while len(points) < pairs:
        word = next(held)
        u, v = 2 * (word >> 38) + 1 - 2**26, 2 * (word >> 12 & 2**26 - 1) + 1 - 2**26
        if u * u + v * v > 2**52 and spare:
            spare -= 1
        else:
            points.append((u, v, u * u + v * v))
    n = 2.0**53
    if dimension % 2:
        w, (u, _, t) = shares[-1], points[-1]
        n = float(2**53 - w) + w * ((u * u) / t)
    out = []
    for w, (u, v, t) in zip(shares, points):
        q = math.sqrt((w / t) / n)
        out += [u * q, v * q]
    return out[:dimension]


@pytest.mark.parametrize("dimension", [2, 3, 4, 5, 10, 101])
def test_same_bits_as_a_scalar_program(dimension: int) -> None:
    seed, vector = 12345678901234567890123456789012345678, 1 << 60
    found = directions(dimension, direction_words(dimension, seed, vector, 5, 25))
    assert found.tolist() == [direction(dimension, seed, vector, code) for code in range(5, 25)]


@pytest.mark.parametrize("dimension", [2, 3, 4, 7])
def test_uniform_law(dimension: int) -> None:
    count = 40_000
    found = directions(dimension, direction_words(dimension, 9, 0, 0, count))
    assert abs((found**2).sum(axis=1) - 1).max() < 1e-14
    deviation = 4.5 / math.sqrt(count)
    assert abs(found.mean(axis=0)).max() < deviation
    assert abs(dimension * found.T @ found / count - np.eye(dimension)).max() < 1.5 * deviation
    # The fourth moment tells the sphere's law from every other of these second moments.
    wanted = 3 / (dimension * (dimension + 2))
    fourth = found**4
    assert (abs(fourth.mean(axis=0) - wanted) < deviation * fourth.std(axis=0)).all()


# -- what the nearest of them are worth ----------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "m", "k"), [(2, 8, 3), (4, 8, 1), (10, 64, 9), (300, 256, 40)])
def test_nearest_are_those_of_a_density_at_angles(d: int, m: int, k: int) -> None:
    along, short, squares = nearest_moments(d, m, k)
    for found in (nearest(d, m, k), alone.nearest(d, m, k)):
        assert found == pytest.approx((along, short, k - squares), rel=1e-9)


# -- the mechanism ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("simplex", [True, False])
@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 300), st.floats(1e-6, 60), st.integers(1, 9), st.integers(1, 3), st.sampled_from(["ball", "sphere"])
)  # fmt: skip
def test_probabilities_are_exact(
    simplex: bool, d: int, epsilon: float, bits: int, messages: int, inputs: str
) -> None:
    """Of vertices of a simplex, and of directions in messages: the ratio, the sum, the best number of near ones, the cap."""
    messages = 0 if simplex else messages
    if messages:
        mechanism = md.RandomDirections(d, bits, md.PureDP(epsilon), messages, inputs)
        assert mechanism.factor * float(
            mechanism.probabilities[0] - mechanism.probabilities[1]
        ) * mechanism.closeness == pytest.approx(1, rel=1e-12)
        assert math.isclose(mechanism.excess, mechanism.factor**2 - 1, rel_tol=1e-9, abs_tol=1e-9)
    else:
        bits = min(bits, (d + (inputs == "ball") + 1).bit_length() - 1)
        mechanism = md.SphereQuantizer(d, bits, md.PureDP(epsilon), inputs)
    (more, less), k, m = mechanism.probabilities, mechanism.near, mechanism.outputs
    share = Fraction(epsilon) / max(messages, 1)
    assert 1 < more / less <= exp_upper(share) and k * more + (m - k) * less == 1
    assert math.log(more / less) == pytest.approx(float(share), rel=1e-9)
    gain = float(mechanism.power - 1) if messages else math.expm1(epsilon)
    held = [nearest(mechanism.working, m, i)[0] if messages else top_sum(m, i) for i in range(1, m)]
    worth = [v / (i * gain + m) for i, v in enumerate(held, 1)]
    assert worth[k - 1] >= max(worth) * (1 - 1e-12)
    assert mechanism.error >= cap_error(d, epsilon) * (1 - 1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [
        md.RandomDirections(3, 4, md.PureDP(2.0), inputs="sphere"),
        md.SphereQuantizer(5, 2, md.PureDP(2.0), inputs="sphere"),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_a_release_has_the_error_of_its_law(mechanism: Any) -> None:
    x = np.tile(np.eye(mechanism.dimension)[0], (2500, 1))
    error = ((mechanism.release(x) - x) ** 2).sum(axis=1)
    assert abs(error.mean() - mechanism.error) <= 5 * error.std() / math.sqrt(len(error))


def test_codes_are_places_in_an_order_that_scalars_give() -> None:
    """A client in another language adds the second half of the products to the first, until one is left."""
    mechanism = md.RandomDirections(5, 5, md.PureDP(4.0), messages=2, inputs="sphere")
    x = np.array([0.1, -0.5, 0.3, 0.7, -0.4])
    y = mechanism.lifted(x, clip=True)[0]
    for message in (0, 1):
        sums = []
        for code in range(32):
            left = [a * b for a, b in zip(direction(5, 9, 4, 32 * message + code), y.tolist())]
            while (half := (len(left) + 1) // 2) < len(left):
                left = [*(a + b for a, b in zip(left, left[half:])), *left[len(left) - half : half]]
            sums.append(-left[0])
        wanted = sorted(range(32), key=sums.__getitem__)
        assert mechanism._order(y, 9, 4, message).tolist() == wanted


def test_more_than_an_encoder_draws_is_refused() -> None:
    with pytest.raises(md.DesignError, match=r"bits.*16.*at most 10 in 100000 dimensions"):
        md.RandomDirections(100_000, 16, md.PureDP(4.0))
    with pytest.raises(md.DesignError, match="messages"):
        md.RandomDirections(10, 4, md.PureDP(4.0), messages=0)


# -- the design -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "epsilon", "bits", "most"),
    [(2, 8.0, 8, 1.0001), (10, 8.0, 8, 1.14), (30, 8.0, 8, 1.12), (100, 16.0, 16, 1.153), (1000, 16.0, 16, 1.148)],
)  # fmt: skip
def test_error_over_the_cap(d: int, epsilon: float, bits: int, most: float) -> None:
    result = md.VectorQuantizer(d, md.PureDP(epsilon), bits=bits, inputs="sphere").solve()
    assert isinstance(result.mechanism, md.RandomDirections) and result.value <= most * result.lower_bound
    assert result.certificate.verify()
    account = verify(dumps(result))
    assert all(holds for _, _, holds in account.rows)


def test_several_messages_where_an_encoder_has_no_more_directions() -> None:
    result = md.VectorQuantizer(100_000, md.PureDP(16.0), bits=16, rotation="exact").solve()
    assert result.mechanism.messages == 2 and result.mechanism.vector_bits == 16
    table = result.trials()
    one = table[table["mechanism"] == "random directions"]["error"].min()
    assert table.iloc[0]["mechanism"] == "2 messages of random directions" and result.value < 0.9 * one
    assert all(holds for _, _, holds in verify(dumps(result)).rows)


@pytest.mark.parametrize(
    ("d", "epsilon", "bits", "rotation"), [(9_999, 8.0, 13, "exact"), (30_000, 8.0, 14, "fast")]
)
def test_a_fast_rotation_is_taken_where_its_proved_error_is_less(
    d: int, epsilon: float, bits: int, rotation: str
) -> None:
    """And one that is not of the uniform law has no proof of less, nor where the exact one is asked for."""
    result = md.VectorQuantizer(d, md.PureDP(epsilon), bits=bits).solve()
    assert getattr(result.mechanism, "rotation", "exact") == rotation
    rows = {claim: (how, holds) for claim, how, holds in verify(dumps(result)).rows}
    assert rows[f"the worst error is at most {result.value:.9g}"] == ("recomputed", True)
    assert all(holds for _, holds in rows.values()) and result.certificate.verify()
    if rotation == "fast":
        assert "fast rotation" in str(result)
        assert result.mechanism.error < result.value < 1.0001 * result.mechanism.error + 2
        least = dataclasses.replace(result, value=result.mechanism.factor**2 * (1 - 1e-9))
        assert not least.certificate.verify() and not all(holds for *_, holds in verify(dumps(least)).rows)
        asked = dataclasses.replace(result, design=dataclasses.replace(result.design, rotation="exact"))
        assert not asked.certificate.verify() and not all(holds for *_, holds in verify(dumps(asked)).rows)


def test_in_no_rotation_is_an_error_more_than_is_proved() -> None:
    """In each of ten alone, not only on average over them; the bound is nearly met where nothing is near."""
    worst = []
    for bits, epsilon in ((1, 0.5), (3, 8.0), (1, 80.0)):
        m = md.SphereQuantizer(11, bits, md.PureDP(epsilon), rotation="fast")
        more, less = map(float, m.probabilities)
        for seed, x in itertools.product(range(10), np.vstack([np.eye(12), np.full(12, 12**-0.5)])):
            products = vertex_products(m._turn.turned(x[None], [(seed, 0)]))[0]
            law = np.full(m.outputs, less)
            law[np.argsort(-products)[: m.near]] = more
            answers = m.factor * m._turn.turned_back(
                weighted_sums(np.eye(m.outputs)), [(seed, 0)] * m.outputs
            )
            worst.append(law @ np.square(answers - x).sum(axis=1) / m.proved_error)
    assert 0.9 < max(worst) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("d", "epsilon", "bits"), [(3, 100.0, 13), (7, 1e-6, 3), (1000, 1e-29, 1), (2, 40.0, 12)]
)
@pytest.mark.parametrize("inputs", ["ball", "box"])
def test_extreme_budgets_are_checked_alone(d: int, epsilon: float, bits: int, inputs: str) -> None:
    result = md.VectorQuantizer(d, md.PureDP(epsilon), bits=bits, inputs=inputs).solve()
    assert result.value >= result.lower_bound and result.certificate.verify()
    assert all(holds for _, _, holds in verify(dumps(result)).rows)


@pytest.mark.parametrize(("d", "m", "k"), [(2, 8, 3), pytest.param(4, 8, 1, marks=pytest.mark.slow)])
def test_nearest_against_forty_digits(d: int, m: int, k: int) -> None:
    with mpmath.workdps(40):
        constant = (
            mpmath.gamma(mpmath.mpf(d) / 2) / mpmath.sqrt(mpmath.pi) / mpmath.gamma(mpmath.mpf(d - 1) / 2)
        )
        parts = [mpmath.pi * i / 24 for i in range(25)]

        def moment(power: int) -> mpmath.mpf:
            def among(angle: mpmath.mpf) -> mpmath.mpf:
                half = mpmath.mpf(d - 1) / 2
                above = mpmath.betainc(half, half, 0, mpmath.sin(angle / 2) ** 2, regularized=True)
                others = mpmath.fsum(
                    mpmath.binomial(m - 1, i) * above**i * (1 - above) ** (m - 1 - i) for i in range(k)
                )
                return m * constant * mpmath.sin(angle) ** (d - 2) * mpmath.cos(angle) ** power * others

            return mpmath.quad(among, parts, maxdegree=4)

        if d == 2:
            wanted = [m / mpmath.pi * mpmath.sin(mpmath.pi * k / m)]
            wanted.append(mpmath.mpf(k) / 2 + m / (4 * mpmath.pi) * mpmath.sin(2 * mpmath.pi * k / m))
        else:
            wanted = [moment(1), moment(2)]
        exact = float(wanted[0]), float(k - wanted[0]), float(k - wanted[1])
    assert nearest(d, m, k) == pytest.approx(exact, rel=1e-12)
    assert alone.nearest(d, m, k) == pytest.approx(exact, rel=1e-12)
