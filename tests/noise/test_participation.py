"""Streams in which one person takes part several times."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import linalg

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.noise import Participation
from mechdesign.noise.correlated.changes import Patterns
from mechdesign.verifier.verify import verify

PRIVACY = md.ApproximateDP(1.0, 1e-6)


def prefix(n: int, participation: Participation, **options: object) -> md.MatrixMechanism:
    return md.MatrixMechanism(md.Workload.prefix_sums(n), PRIVACY, participation=participation, **options)


def by_brute_force(n: int, k: int, b: int, *, fixed: bool, fewer: bool) -> set[tuple[int, ...]]:
    sets = [
        chosen
        for size in range(1, k + 1)
        for chosen in combinations(range(n), size)
        if all((y - x) % b == 0 if fixed else y - x >= b for x, y in zip(chosen, chosen[1:]))
    ]
    if not fewer:
        return {chosen for chosen in sets if len(chosen) == k}
    return {c for c in sets if not any(set(c) < set(other) for other in sets)}


@given(st.integers(1, 10), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.booleans())
def test_patterns_are_all_that_are_part_of_no_other(n: int, k: int, b: int, fixed: bool, fewer: bool) -> None:
    assume(k <= -(-n // b))
    asked = Participation(k, **{"every" if fixed else "apart": b}, fewer=fewer)
    found = asked.patterns(n)
    assert set(found) == by_brute_force(n, k, b, fixed=fixed, fewer=fewer)
    assert len(set(found)) == len(found)


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans())
def test_the_worst_change_is_a_vertex(n: int, k: int, b: int, fixed: bool, signed: bool) -> None:
    """Against every subset and every sign."""
    assume(k <= -(-n // b))
    asked = Participation(k, **{"every" if fixed else "apart": b})
    strategy = np.random.default_rng(n + 10 * k).normal(size=(n, n))
    gram, worst = strategy.T @ strategy, 0.0
    for full in by_brute_force(n, k, b, fixed=fixed, fewer=True):
        for size in range(1, len(full) + 1):
            for chosen in combinations(full, size):
                for code in range(2**size if signed else 1):
                    d = np.zeros(n)
                    d[list(chosen)] = [-1.0 if code >> j & 1 else 1.0 for j in range(size)]
                    worst = max(worst, float(d @ gram @ d))
    vectors = asked.vectors(n, signed=signed)
    assert ((vectors @ strategy.T) ** 2).sum(axis=1).max() == pytest.approx(worst, rel=1e-12)
    assert asked.count(n, signed=signed) >= len(vectors)


@pytest.mark.parametrize(("n", "least"), [(32, 9263.25), (64, 22193.29)])
def test_four_epochs_in_a_fixed_order(n: int, least: float) -> None:
    result = prefix(n, Participation(4, every=n // 4)).solve()
    assert result.value == pytest.approx(least, rel=1e-5)
    assert result.gap <= 1e-6
    assert result.mechanism.streams
    # group privacy for four steps: sixteen times one epoch
    once = md.MatrixMechanism(md.Workload.prefix_sums(n), PRIVACY).solve()
    assert result.value < 0.3 * 16 * once.value


@pytest.mark.parametrize(
    ("asked", "least", "patterns"),
    [
        (Participation(4, every=8, fewer=False), 5960.15, 8),
        (Participation(4, apart=8, fewer=False), 8116.08, 330),
    ],
)
def test_everybody_in_every_epoch_one_way(asked: Participation, least: float, patterns: int) -> None:
    vectors = asked.vectors(32, signed=False)
    assert len(vectors) == patterns
    result = md.CorrelatedGaussian(vectors @ np.tri(32).T, PRIVACY, span=True).solve()
    assert result.value == pytest.approx(least, rel=1e-5)


@pytest.mark.slow
def test_steps_that_are_far_enough_apart() -> None:
    asked = Participation(4, apart=8)
    assert prefix(32, asked).solve().value == pytest.approx(9474.61, rel=1e-5)
    # 8,116.08 for those who take part four times protects nobody who takes part less often
    assert prefix(32, asked, signed=False).solve().value == pytest.approx(8320.14, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "square_root", "gap"),
    [({}, 95_500, 0.16), ({"loss": "largest"}, 2_660, 0.4), ({"signed": False}, 95_500, 0.22)],
)
def test_patterns_that_nobody_can_list(options: dict[str, object], square_root: float, gap: float) -> None:
    """4 · 10⁹ signed patterns: the damped square root, its damping searched, is what was published."""
    result = prefix(64, Participation(8, apart=4), **options).solve()
    assert not result.design.changes.listed
    assert result.lower_bound < result.value < square_root
    assert result.gap < gap
    assert result.mechanism.streams
    assert all(holds for *_, holds in verify(dumps(result)).rows)
    assert result.certificate.verify()


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.data())
def test_the_first_pattern_is_the_worst_for_coefficients_that_fall(
    n: int, k: int, b: int, signed: bool, data: st.DataObject
) -> None:
    """Against the list."""
    assume(k <= -(-n // b))
    falls = data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    strategy = np.tril(linalg.toeplitz(np.cumsum(falls)[::-1]))
    asked = Patterns(n, k, 1.0, signed, Participation(k, apart=b), sums=True)
    spent = asked.spent(strategy)[0]
    asked.__dict__["listed"] = False
    assert asked.spent(strategy)[0] == spent
    if n > 1:
        assert asked.spent(strategy + np.diag(np.ones(n - 1), -1) * (1 + falls[-1]))[0] == np.inf


def test_many_epochs_of_one_step_are_one_person_on_all_counts() -> None:
    """every=1 and times=c is l0=c."""
    one = prefix(6, Participation(2, every=1)).solve()
    other = md.MatrixMechanism(md.Workload.prefix_sums(6), PRIVACY, l0=2).solve()
    assert one.value == pytest.approx(other.value, rel=1e-6)


def test_a_file_of_it_is_checked_alone() -> None:
    result = prefix(12, Participation(3, every=4)).solve()
    text = dumps(result)
    assert loads(text, kinds=KINDS).design.participation == Participation(3, every=4)
    assert all(holds for *_, holds in verify(text).rows)


@pytest.mark.parametrize("member", [{"every": 3}, {"times": 2}, {"every": None, "apart": 4}])
def test_noise_for_other_patterns_is_refused(member: dict[str, int | None]) -> None:
    """Those that consume more."""
    from faults import altered

    payload = json.loads(dumps(prefix(12, Participation(2, every=4)).solve()))["payload"]
    assert altered.ACCEPT["alone"](payload)
    fields = payload["fields"]["design"]["fields"]["participation"]["fields"]
    fields |= {"times": 3} if member == {"times": 2} else member
    for verifier in ("alone", "package"):
        assert not altered.ACCEPT[verifier](payload)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"times": 4}, "apart"),
        ({"times": 4, "apart": 2, "every": 2}, "apart"),
        ({"times": 0, "apart": 2}, "times"),
    ],
)
def test_a_participation_says_one_thing(asked: dict[str, int], words: str) -> None:
    with pytest.raises(DesignError, match=words):
        Participation(**asked)


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    with pytest.raises(DesignError, match="at most 2 times"):
        prefix(32, Participation(4, every=16))
    with pytest.raises(DesignError, match="span 8 of 32"):
        prefix(32, Participation(4, every=8, fewer=False), signed=False)
    with pytest.raises(DesignError, match=r"too many patterns.*fewer=True"):
        prefix(1024, Participation(4, apart=64, fewer=False))
    with pytest.raises(DesignError, match=r"too many patterns.*at most 1118 steps"):
        prefix(2048, Participation(4, apart=64))
    with pytest.raises(DesignError, match="too many patterns"):
        md.MatrixMechanism(md.Workload.ranges(128), PRIVACY, participation=Participation(4, apart=8))
    with pytest.raises(DesignError, match="participation says"):
        prefix(32, Participation(4, every=8), l0=2)
