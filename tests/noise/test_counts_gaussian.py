"""Counts of which one person changes a few: the published numbers, the listed sets, and tampering."""

import itertools
import json
from dataclasses import replace

import cheap
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.noise.correlated.noise import CorrelatedGaussianNoise

PRIVACY = md.ApproximateDP(1, 1e-6)


def test_the_reference():
    plus = md.CountsGaussian(20, 3, PRIVACY, signed=False).solve()
    assert plus.value == pytest.approx(1039.4379, abs=1e-3)
    assert plus.lower_bound == pytest.approx(plus.value, rel=1e-9) and plus.certificate.verify()
    both = md.CountsGaussian(20, 3, PRIVACY).solve()
    assert both.value == pytest.approx(1070.8747, abs=1e-3) and "independent" in both.notes[0]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 10))
def test_as_the_listed_set(n, c, most):
    c = min(c, n)
    result = md.CountsGaussian(n, c, PRIVACY, most=most, signed=False).solve()
    vectors = most * np.array([v for v in itertools.product((0.0, 1.0), repeat=n) if 0 < sum(v) <= c])
    listed = md.CorrelatedGaussian(vectors, PRIVACY).solve()
    assert result.value == pytest.approx(listed.value, rel=1e-7)
    assert (result.mechanism.mahalanobis(vectors) ** 2).max() <= result.design.budget * (1 + 1e-12)
    assert result.lower_bound <= listed.value * (1 + 1e-9)


def test_signed_against_every_pattern():
    result = md.CountsGaussian(4, 2, PRIVACY, signed=True).solve()
    vectors = np.array([v for v in itertools.product((-1.0, 0.0, 1.0), repeat=4) if 0 < np.abs(v).sum() <= 2])
    assert (result.mechanism.mahalanobis(vectors) ** 2).max() <= result.design.budget * (1 + 1e-12)
    assert result.value == pytest.approx(md.CorrelatedGaussian(vectors, PRIVACY).solve().value, rel=1e-6)


def test_a_tampered_certificate_does_not_verify():
    held = md.CountsGaussian(5, 2, PRIVACY, signed=False).solve().certificate
    assert held.verify()
    assert not replace(held, value=held.value * 0.99).verify()
    assert not replace(held, lower_bound=held.lower_bound * 1.01).verify()
    assert not replace(held, question=replace(held.question, l0=3)).verify()
    wider = held.law.whitening.copy()
    wider[0, 1] *= 1.001
    assert not replace(held, law=replace(held.law, whitening=wider)).verify()


def test_release_and_files(tmp_path):
    result = md.CountsGaussian(5, 2, PRIVACY, signed=False).solve()
    assert result.mechanism.release(np.arange(5.0)).shape == (5,)
    result.save(tmp_path / "a.json")
    assert md.load(tmp_path / "a.json").certificate.verify()
    result.report(tmp_path / "a.html")


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"counts": 0}, "counts = 0"),
        ({"l0": 6}, "l0 = 6"),
        ({"l0": 0}, "l0 = 0"),
        ({"most": -1}, "most = -1"),
        ({"signed": 1}, "signed = 1"),
        ({"privacy": md.PureDP(1)}, "privacy"),
    ],
)
def test_bad_input(bad, word):
    with pytest.raises(md.DesignError, match=word):
        md.CountsGaussian(**{"counts": 5, "l0": 2, "privacy": PRIVACY, **bad})


def test_seven_hundred_counts_need_no_spectrum(monkeypatch):
    """On busy cores the eigenvectors of a matrix that is known in two numbers took seconds; a Cholesky factor will do."""
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: pytest.fail("eigenvectors were asked for"))
    result = md.CountsGaussian(60, 7, md.ApproximateDP(1.0, 1e-6), signed=False).solve(time_limit=1.0)
    assert result.gap < 1e-9 and result.certificate.verify()
    monkeypatch.undo()
    for matrix, fine in ((np.eye(30), True), (np.ones((30, 30)), True), (np.eye(30) - 1e-3, True)):
        assert (CorrelatedGaussianNoise(covariance=matrix) is not None) == fine
    for below in (1e-8, 1e-3, 2.0):
        with pytest.raises(md.DesignError, match="semidefinite"):
            CorrelatedGaussianNoise(covariance=np.diag([1.0] * 29 + [-below]))


@pytest.mark.parametrize("most", [5e-324, 1e-200, 1e-160, 1e160])
def test_changes_whose_variances_doubles_do_not_hold_are_refused(most):
    """Was: covariance 0 at 1e-200, 1.0000021 times the budget at 1e-160, ValueError and OverflowError at the ends."""
    with pytest.raises(md.DesignError, match=r"most = .*another unit"):
        md.CountsGaussian(5, 2, md.ApproximateDP(1.0, 1e-6), most=most)


@given(st.floats(-99.0, 99.0))
@settings(max_examples=15)
def test_no_unit_breaks_the_budget(power):
    result = md.CountsGaussian(5, 2, md.ApproximateDP(1.0, 1e-6), most=10.0**power).solve()
    assert result.certificate.verify() and result.gap < 1e-9


def _forged(result, **changes):
    """The result as a file that says otherwise of its noise, sealed anew; whether it is verified."""
    payload = json.loads(dumps(result))["payload"]
    payload["fields"]["mechanism"]["fields"] |= changes
    try:
        return bool(loads(cheap.sealed(payload), kinds=KINDS).checks()["holds"].all())
    except md.ResultFormatError:
        return False


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("order", [(0, 0, 0, 0, 0), (0, 2, 2, 3, 4), (4, 3, 2, 1, 0), (0, 1, 2, 3)])
def test_what_is_released_is_what_is_proved(signed, order):
    """Five independent copies of one count were released, and verified: δ of .0212 in the place of .001."""
    result = md.CountsGaussian(5, 2, md.ApproximateDP(1, 1e-3), signed=signed).solve()
    assert _forged(result)
    assert not _forged(result, coordinates={"$tuple": list(order)})
    with pytest.raises(md.DesignError, match="coordinates"):
        replace(result.mechanism, coordinates=order)
    listed = md.CorrelatedGaussian(np.eye(5), md.ApproximateDP(1, 1e-3)).solve()
    assert _forged(listed) and not _forged(listed, coordinates={"$tuple": list(order)})


def test_a_lift_has_a_row_for_each_number_and_a_column_for_each_coordinate():
    law = md.CorrelatedGaussian([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]], PRIVACY, span=True).solve().mechanism
    assert law.lift is not None and replace(law).release(np.ones(3)).shape == (3,)
    for lift in (
        None,
        law.lift[:-1],
        tuple(row[:-1] for row in law.lift),
        tuple((0.5, 0.5) for _ in law.lift),
    ):
        with pytest.raises(md.DesignError, match=r"lift|coordinates"):
            replace(law, lift=lift)
    with pytest.raises(md.DesignError, match="coordinates"):
        replace(law, coordinates=law.coordinates[::-1])


@pytest.mark.parametrize("budget", [1e300, 1e-300, 0.0, -1.0, None])
def test_the_budget_that_a_release_is_widened_for_is_the_one_proved(budget):
    """With a budget of 1e300 in the file the noise was not widened for its lattice, and the file verified."""
    designs = md.CountsGaussian(4, 2, PRIVACY), md.CorrelatedGaussian(np.eye(2), md.ZeroConcentratedDP(0.5))
    for design in designs:
        result = design.solve()
        assert _forged(result) and not _forged(result, budget=budget)
        for by in (1 + 1e-9, 2.0):
            assert not _forged(result, budget=result.mechanism.budget * by)
