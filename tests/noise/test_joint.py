"""Several mechanisms, whose scales are multiplied by the least factor at which all of them together are private."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.accounting.interval import NoiseTerm, delta_interval, joint_interval
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import verify
from tests import cheap

STEPS = (NoiseTerm(stats.norm(scale=1.0), 1.0),)


def _laplace(loss: np.ndarray, scale: float) -> np.ndarray:
    """∫ (p − e^l q)₊ of Laplace noise moved by 1, at any l."""
    inside = -np.expm1(np.minimum((loss - 1 / scale) / 2, 0.0))
    return np.where(loss < -1 / scale, -np.expm1(loss), inside)


def _two_rounds_and_laplace(rate: float, scale: float, epsilon: float) -> float:
    """δ of two sampled normal rounds and one of Laplace noise, by quadrature over both outcomes; the larger of both directions."""
    x, weight = np.polynomial.legendre.leggauss(1600)
    t, weight = 10 * x, 10 * weight
    plain, moved = stats.norm.pdf(t), (1 - rate) * stats.norm.pdf(t) + rate * stats.norm.pdf(t - 1)
    found = []
    for p, q in ((moved, plain), (plain, moved)):
        loss = np.log(p / q)
        both = np.add.outer(loss, loss)
        found.append(float(((p * weight)[:, None] * (p * weight) * _laplace(epsilon - both, scale)).sum()))
    return max(found)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.8])
def test_what_is_composed_is_what_quadrature_composes(epsilon: float) -> None:
    rounds = [(STEPS, 2, 0.2), ((NoiseTerm(stats.laplace(scale=3.0), 1.0),), 1, 1.0)]
    found = joint_interval(rounds, epsilon, width=1e-4)
    exact = _two_rounds_and_laplace(0.2, 3.0, epsilon)
    assert found.lower * (1 - 1e-6) <= exact <= found.upper * (1 + 1e-6)
    assert found.width < 2e-4


def test_parts_of_one_mechanism_are_that_mechanism() -> None:
    whole = delta_interval(STEPS, 1.0, rounds=50, sampling_rate=0.05, width=1e-3)
    parts = joint_interval([(STEPS, 20, 0.05), (STEPS, 30, 0.05)], 1.0, width=1e-3)
    assert parts.lower <= whole.upper and whole.lower <= parts.upper and parts.width < 2e-3
    seen = joint_interval([(STEPS, 20, 0.05), (STEPS, 2, 1.0), (STEPS, 30, 0.05)], 1.0)
    nearly = joint_interval([(STEPS, 20, 0.05), (STEPS, 2, 1 - 1e-13), (STEPS, 30, 0.05)], 1.0)
    assert seen.lower <= nearly.upper and nearly.lower <= seen.upper and seen.lower > 3 * parts.upper


def test_the_factor_is_the_least_and_both_checkers_prove_it() -> None:
    result = cheap.solved("joint-calibration")
    noise, privacy = result.mechanism, result.design.privacy
    assert noise.delta_interval(privacy.epsilon, width=1e-3).upper <= privacy.delta
    assert noise.times(0.997).delta_interval(privacy.epsilon, width=1e-3).lower > privacy.delta
    assert result.certificate.verify()
    assert all(holds for *_, holds in verify.verify(dumps(result)).rows)
    claims = {claim: how for claim, how, _ in verify.verify(dumps(result)).rows}
    assert claims["delta at most 0.001 at epsilon = 1.0"] == "proved"


@pytest.mark.parametrize("which", [0, 1])
def test_no_checker_takes_less_noise_or_more_rounds(which: int) -> None:
    result = cheap.solved("joint-calibration")
    one = result.mechanism.noises[which]
    smaller = replace(one, law=one.law.dist(scale=one.law.kwds["scale"] * 0.99))
    for other in (smaller, replace(one, rounds=one.rounds + 1), replace(one, sampling_rate=0.11)):
        noises: list[Any] = [*result.mechanism.noises]
        noises[which] = other
        forged = replace(result, mechanism=replace(result.mechanism, noises=tuple(noises)))
        assert not forged.certificate.verify()
        assert not all(holds for *_, holds in verify.verify(dumps(forged)).rows)


def test_a_ledger_enters_all_rounds_at_once(tmp_path: Path) -> None:
    result = cheap.solved("joint-calibration")
    ledger = md.Ledger(tmp_path / "ledger.jsonl", result.design.privacy)
    with pytest.raises(md.DesignError, match="charge"):
        result.release(1.0, ledger=ledger, term=0)
    ledger.charge(result)
    assert ledger.left() is None
    assert np.isfinite(result.mechanism.release(1.0, term=1))
    with pytest.raises(md.DesignError):
        ledger.charge(result)


def test_what_cannot_be_scaled_together_is_refused() -> None:
    privacy, normal = md.ApproximateDP(1.0, 1e-5), md.AdditiveNoise(stats.norm(), 1.0)
    whole = md.AdditiveNoise(md.noise.discrete_gaussian(2.0), 1.0)
    other = md.AdditiveNoise(stats.norm(), md.Sensitivity(l2=1, neighbours="replace"))
    for terms in ([], [whole], [normal, other], [1.0], normal):
        with pytest.raises(md.DesignError, match="terms"):
            md.calibrate(terms=terms, privacy=privacy)  # type: ignore[arg-type]
    with pytest.raises(md.DesignError, match="noise"):
        md.calibrate("gaussian", terms=[normal], privacy=privacy)
    with pytest.raises(md.DesignError, match="sensitivity"):
        md.calibrate("gaussian", privacy=privacy)
    with pytest.raises(md.DesignError, match="delta"):
        md.calibrate(terms=[normal], privacy=md.ApproximateDP(1.0, 0.0))
    for wrong in (md.PureDP(1.0), None):
        with pytest.raises(md.DesignError, match="privacy"):
            md.calibrate(terms=[normal], privacy=wrong)  # type: ignore[arg-type]
