"""The stand-alone check of correlated Gaussian noise, counts and strategies: sound and doctored files, other computations, the package."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cheap import sealed
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier.allocation import largest_square
from mechdesign.verifier.gaussian import Changed, falling, largest_change
from mechdesign.verifier.reading import Account, Refused
from mechdesign.verifier.verify import verify

A = md.ApproximateDP(1.0, 1e-6)
Z = md.ZeroConcentratedDP(0.1)


def refused(result: Result) -> list[str]:
    """Claims that do not hold, or why the file cannot be one."""
    try:
        return [claim for claim, _, holds in verify(dumps(result)).rows if not holds]
    except Refused as error:
        return [str(error)]


def test_counts_that_all_rise_are_seen_where_signs_are_free() -> None:
    """Of R = p I + q J with q > 0: within the budget but for changes in one direction."""
    result = md.CountsGaussian(12, 3, Z, most=2.0).solve()
    law = result.mechanism
    doctored = replace(law, whitening=law.whitening * 0.9 + 0.2 * law.whitening[0, 0])
    claims = refused(replace(result, mechanism=doctored))
    assert "no change consumes more than the budget" in claims


def test_a_change_that_leaves_the_subspace_is_refused() -> None:
    result = md.CorrelatedGaussian([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]], A, span=True).solve()
    design = replace(result.design, changes=np.vstack([result.design.changes, [[0.0, 0.0, 1e-12]]]))
    assert any(
        "differs between neighbours" in claim
        for claim in refused(replace(result, design=design, lower_bound=None))
    )


def test_all_blocks_of_a_workload_ask_of_the_same_counts() -> None:
    """Queries on three counts are not answered by a strategy on six, however they are multiplied."""
    document = json.loads(dumps(md.MatrixMechanism(md.Workload.prefix_sums(6), Z).solve().mechanism))
    blocks = document["payload"]["fields"]["workload"]["fields"]["blocks"]["$tuple"]
    blocks.append(json.loads(json.dumps(blocks[0]).replace('"size": 6', '"size": 3')))
    with pytest.raises(Refused, match="blocks of a workload on other counts"):
        verify(sealed(document["payload"]))


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
    assert largest_change(gram, Changed(most, signed), Account(10**6)) == best


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
    assert first == largest_change(gram, asked, Account(10**7))
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
