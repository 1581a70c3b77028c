"""Streams from a few buffers: published values, privacy over all neighbours with rounding, interruption, what no Toeplitz strategy costs less than."""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import pickle
import warnings
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise import BufferedNoise, BufferedToeplitz, Participation, Stream
from mechdesign.noise.strategies import least_toeplitz
from mechdesign.verifier.verify import verify

ONE = md.GaussianDP(1.0)
ONCE = Participation(1, apart=1)


@cache
def solved(size: int, **options: Any) -> md.Result:
    return BufferedToeplitz(size, ONE, **options).solve()


@pytest.mark.parametrize(
    ("size", "buffers", "largest", "total"),
    [
        (1000, 2, 11.0308, 9460.82),
        (1000, 3, 10.692362457615639, 9309.10),  # as jax_privacy's own optimizer
        (10_000, 4, 16.0249, 143199),
        pytest.param(4096, 8, 13.7929, 50126.9, marks=pytest.mark.slow),
        pytest.param(1_000_000, 8, 29.8584, 27549503, marks=pytest.mark.slow),
    ],
)
def test_values_and_bounds_of_the_tables(size: int, buffers: int, largest: float, total: float) -> None:
    for loss, known in (("largest", largest), ("total", total)):
        result = solved(size, buffers=buffers, loss=loss)
        assert result.lower_bound is not None and result.lower_bound <= result.value <= known * 1.001
        if buffers == 8:
            assert result.gap is not None and result.gap < 1e-3 and result.bound_how == "proved"


def coefficients(law: BufferedNoise) -> np.ndarray:
    """c, from the law's integers."""
    p, w = (np.array(part, dtype=float) / 2.0**62 for part in (law.poles, law.weights))
    powers = p[:, None] ** np.arange(law.size - 1)
    return np.concatenate([[1.0], w @ powers])


def inverse(c: np.ndarray) -> np.ndarray:
    """The coefficients of 1/((1 - z) c(z)), by division of power series."""
    b = np.zeros(len(c))
    for t in range(len(c)):
        b[t] = 1.0 - c[1 : t + 1] @ b[:t][::-1]
    return b


@pytest.mark.parametrize("often", [ONCE, Participation(4, apart=7), Participation(3, apart=1)])
@pytest.mark.parametrize("loss", ["total", "largest"])
def test_value_is_the_plain_sum_at_the_worst_pattern(often: Participation, loss: str) -> None:
    result = solved(61, buffers=2, loss=loss, participation=often, most=2.0)
    c = coefficients(result.mechanism)
    worst = max(
        np.convolve(np.isin(np.arange(61), pattern), c)[:61]
        @ np.convolve(np.isin(np.arange(61), pattern), c)[:61]
        for pattern in [range(o, 61, often.step)[: often.times] for o in range(61)]
    )
    variances = np.cumsum(inverse(c) ** 2)
    cost = variances[-1] if loss == "largest" else variances.sum()
    assert result.value == pytest.approx(4 * worst * cost, rel=1e-9)
    assert result.mechanism.variances == pytest.approx(4 * worst * variances, rel=1e-9)


def outputs(law: BufferedNoise, counts: np.ndarray) -> list[int]:
    """W without noise, as the theorem has it."""
    state, out = [0] * len(law.poles), []
    for count in counts:
        x = math.floor(Fraction(float(count)) / Fraction(law.step) + Fraction(1, 2))
        out.append(x + sum(a * s for a, s in zip(law.weights, state)) // 2**62)
        state = [a * s // 2**62 + x for a, s in zip(law.poles, state)]
    return out


@pytest.mark.parametrize(
    ("size", "often"), [(64, ONCE), (12, Participation(3, apart=3)), (9, Participation(2, every=4))]
)
def test_delta_over_all_neighbours_with_rounding(size: int, often: Participation) -> None:
    privacy = md.ApproximateDP(1.0, 1e-5)
    result = BufferedToeplitz(size, privacy, buffers=2, participation=often).solve()
    law, most = result.mechanism, result.mechanism.shift(1.0, often.times, often.step)
    rng, worst, beyond = np.random.default_rng(0), 0.0, 0.0
    exact = math.ceil(1 / Fraction(law.step)) * float(law._consumed(often.times, often.step).sqrt())
    for pattern in often.patterns(size):
        base = rng.normal(size=size) * 10 ** rng.uniform(-3, 6)
        before = outputs(law, base)
        for signs in itertools.product((1, -1), repeat=len(pattern)):
            moved = base.copy()
            moved[list(pattern)] += signs
            after = outputs(law, np.nextafter(moved, base))  # the sum may be rounded to more than 1
            square = sum((x - y) ** 2 for x, y in zip(before, after))
            assert square <= most**2
            worst, beyond = max(worst, math.sqrt(square)), max(beyond, math.sqrt(square) - exact)
    assert worst >= 0.999 * float(most)
    assert beyond < float(most) - exact  # which rounding may reach, and no more
    mu = worst * law.step / law.deviation
    delta = stats.norm.sf(1 / mu - mu / 2) - math.e * stats.norm.sf(1 / mu + mu / 2)
    assert 0.98e-5 < delta <= 1e-5 * (1 + 1e-9)


def noises(monkeypatch: pytest.MonkeyPatch, law: BufferedNoise) -> np.ndarray:
    """Noise that is a function of the step, drawn once, in the place of what is drawn."""
    held = np.random.default_rng(1).normal(scale=law.deviation / law.step, size=law.size).astype(np.int64)
    monkeypatch.setattr(Stream, "_draw", lambda own, size: held[own.done : own.done + size].tolist())
    return held


def test_a_release_is_the_outputs_with_noise_and_what_is_made_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    law = solved(200, buffers=3).mechanism
    held = noises(monkeypatch, law)
    counts = np.random.default_rng(2).normal(size=200) * 1e6
    noisy = (np.array(outputs(law, counts), dtype=object) + held).astype(float) * law.step
    answers = np.convolve(inverse(coefficients(law)), noisy)[:200]
    assert law.release(counts) == pytest.approx(answers, abs=1e-6)
    assert np.std(answers - np.cumsum(counts)) > 0.3


def test_the_noise_of_a_release_is_normal_and_independent() -> None:
    law = solved(9000, buffers=2, loss="largest").mechanism
    answers = law.release(np.full(9000, 7.0)) - 7.0 * np.arange(1, 9001)
    drawn = np.convolve(coefficients(law), np.diff(answers, prepend=0.0))[:9000] / law.deviation
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 6 / math.sqrt(9000)


def test_an_interrupted_stream_answers_as_one_that_was_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    law = solved(9000, buffers=2, loss="largest").mechanism
    noises(monkeypatch, law)
    counts = np.random.default_rng(3).integers(0, 10**6, 9000).astype(float)
    whole = law.release(counts)
    running, found = law.start(), []
    for k, part in enumerate(np.split(counts, [1, 5000, 5001])):
        found += list(map(running.step, part)) if k != 1 else running.step(part).tolist()
        running.save(tmp_path / "state.json")
        running = law.resume(tmp_path / "state.json")
    assert found == whole.tolist()
    assert list(law.stream(counts[:7])) == whole[:7].tolist()
    held = json.loads((tmp_path / "state.json").read_text())
    assert "before noise" in held["secret"] and held["done"] == 9000


def test_no_file_is_a_state_of_another_law(tmp_path: Path) -> None:
    law = solved(9, buffers=2).mechanism
    law.start().save(tmp_path / "state.json")
    text = (tmp_path / "state.json").read_text()
    with pytest.raises(md.ResultFormatError, match="no state"):
        replace(law, deviation=law.deviation * 1.5).resume(tmp_path / "state.json")
    for bad in (
        "",
        "[]",
        text.replace('"done": 0', '"done": 10'),
        text.replace("mechdesign-stream", "mechdesign-ledger"),
        text.replace('"total": 0', '"total": 0.5'),
    ):
        (tmp_path / "state.json").write_text(bad)
        with pytest.raises(md.ResultFormatError, match="no state"):
            law.resume(tmp_path / "state.json")
    with pytest.raises(md.ResultFormatError, match=r"nowhere.json: .*: give the file"):
        law.resume(tmp_path / "nowhere.json")


def test_refused_counts_are_not_counted() -> None:
    stream = solved(5, buffers=2).mechanism.start()
    stream.step([1.0, 2.0])
    for bad, words in (
        ([math.nan], "finite"),
        ([1, math.inf], "finite"),
        ([[1.0]], "one number"),
        ([1.0] * 4, "more than the 5"),
        ("x", "finite"),
    ):
        with pytest.raises(md.DataError, match=words):
            stream.step(bad)
        assert stream.done == 2
    assert stream.step([3, -4e300, 5]).shape == (3,) and stream.done == 5
    with pytest.raises(md.DataError, match="more than the 5"):
        stream.step(0.0)


@pytest.mark.parametrize("loss", ["total", "largest"])
def test_no_toeplitz_strategy_costs_less_than_the_bound(loss: str) -> None:
    """Any at all: random ones of either sign, and the best that descent finds."""
    rng = np.random.default_rng(4)
    for size in (2, 3, 7, 16):
        weights = np.ones(size) if loss == "largest" else np.arange(size, 0.0, -1)

        def cost(free: np.ndarray, weights: np.ndarray = weights) -> float:
            c = np.concatenate([[1.0], free])
            return float((c @ c) * (weights @ inverse(c) ** 2))

        start = np.cumprod(1 - 0.5 / np.arange(1, size))
        bound = least_toeplitz(size, largest=loss == "largest")
        assert bound <= optimize.minimize(cost, start).fun < 1.001 * bound
        assert all(
            bound <= cost(start + spread * rng.normal(size=size - 1)) for spread in np.geomspace(1e-3, 1, 50)
        )


@pytest.mark.parametrize(
    ("loss", "often"), [("total", ONCE), ("largest", ONCE), ("total", Participation(3, apart=40))]
)
def test_both_checks_refuse_what_is_better_than_true(loss: str, often: Participation, tmp_path: Path) -> None:
    result = solved(300, buffers=2, loss=loss, most=3.0, participation=often)
    law, bound = result.mechanism, result.lower_bound
    assert (bound is None) == (often != ONCE)
    sound = result.certificate
    wider = {
        "value": {"value": result.value * (1 - 1e-3)},
        **({"bound": {"lower_bound": bound * (1 + 1e-3)}} if bound is not None else {}),
        "deviation": {"law": replace(law, deviation=law.deviation * (1 - 1e-3))},
        "heavier": {"law": replace(law, weights=(law.weights[0] + 2**50, *law.weights[1:]))},
    }
    assert sound is not None and sound.verify()
    for name, change in {"": {}, **wider}.items():
        given = replace(sound, **change)
        given_file = tmp_path / "certificate.json"
        given_file.write_text(dumps(given))
        account = verify(given_file.read_text())
        assert given.verify() == (name == ""), name
        assert all(holds for *_, holds in account.rows) == (name == ""), name
        assert {how for _, how, _ in account.rows} == {"proved", "claimed"}


def test_coefficients_are_those_of_the_strategy_and_its_inverse() -> None:
    law = solved(200, buffers=3).mechanism
    held = json.loads(json.dumps(law.coefficients()))

    def series(part: dict[str, Any]) -> np.ndarray:
        decay, scale = (np.array(part[name]) for name in ("buf_decay", "output_scale"))
        return np.concatenate([[1.0], scale @ decay[:, None] ** np.arange(199)])

    assert series(held) == pytest.approx(coefficients(law), rel=1e-12)
    identity = np.convolve(series(held), series(held["inverse"]))[:200]
    assert identity == pytest.approx(np.eye(200)[0], abs=1e-12)


def test_a_ledger_has_one_entry_for_the_whole_stream(tmp_path: Path) -> None:
    result = BufferedToeplitz(40, md.ApproximateDP(1.0, 1e-6), buffers=2).solve()
    ledger = md.plan.Ledger(tmp_path / "ledger", md.ApproximateDP(1.0, 1e-6))
    ledger.charge(result)
    assert len(ledger.to_frame()) == 1
    list(result.mechanism.stream([1.0] * 40))
    assert len(ledger.to_frame()) == 1
    with pytest.raises(md.DesignError):
        result.release(np.ones(40), ledger=ledger)


@pytest.mark.parametrize("twice", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_noise_is_used_twice(twice: Any) -> None:
    stream = solved(5, buffers=2).mechanism.start()
    stream.step(1)
    with pytest.raises(md.DesignError, match="same noise"):
        twice(stream)


def test_a_forked_process_does_not_go_on_with_a_stream() -> None:
    stream = solved(5, buffers=2).mechanism.start()
    stream.step(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            stream.step(1)
        except md.DesignError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert stream.step(1) is not None
