"""The ledger: nothing leaves without its entry, nothing above the budget, no line can be changed unseen."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cheap
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence.proofs import PROVED, Claim
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.plan import Ledger, Released, consumption
from mechdesign.plan import ledger as module
from mechdesign.plan.ledger import concentrated, worth
from mechdesign.problem.privacy import Consumption

PURE = md.PureDP(0.25)


def count(privacy: object = PURE, **options: object) -> md.Result:
    return md.calibrate("discrete_laplace", privacy=privacy, sensitivity=1, **options)


def normal(privacy: object, **options: object) -> md.Result:
    return md.calibrate("gaussian", privacy=privacy, sensitivity=1, **options)


@pytest.fixture(scope="module")
def quarter() -> md.Result:
    return count()


# -- what is consumed ------------------------------------------------------------------------------------


def _divergence(order: float, pairs: list[tuple[object, object]]) -> object:
    """Rényi divergence of two laws on points, to 50 digits."""
    a = mpmath.mpf(order)
    return mpmath.log(mpmath.fsum(p**a * q ** (1 - a) for p, q in pairs)) / (a - 1)


def _laplace_divergence(order: float, ratio: float) -> object:
    a, r = mpmath.mpf(order), mpmath.mpf(float(ratio))
    mean = (a * mpmath.exp((a - 1) * r) + (a - 1) * mpmath.exp(-a * r)) / (2 * a - 1)
    return mpmath.log(mean) / (a - 1)


mpmath.mp.dps = 50
ORDERS = (1.0001, 1.1, 1.5, 2.0, 4.0, 16.0, 100.0, 1e4)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("rounds", [1, 12])
def test_laplace_noise_consumes_no_less_than_its_divergence(epsilon: float, rounds: int) -> None:
    found = consumption(
        md.calibrate("laplace", privacy=md.PureDP(epsilon), sensitivity=2.0, dimension=3, rounds=rounds)
    )
    each = epsilon / (3 * rounds)
    assert found.epsilon == pytest.approx(epsilon, rel=1e-14) and found.epsilon <= epsilon
    assert math.isinf(found.mu) and found.statement == (epsilon, 0.0)
    assert all(3 * rounds * _laplace_divergence(a, each) <= found.rho * a for a in ORDERS)
    assert found.rho == pytest.approx(3 * rounds * each * math.tanh(each / 2), rel=1e-12)


def test_discrete_gaussian_noise_has_rho_and_no_mu() -> None:
    result = md.calibrate("discrete_gaussian", privacy=md.ZeroConcentratedDP(0.5), sensitivity=1)
    found, sigma = consumption(result), result.mechanism.law.args[0]
    weight = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for k in range(-200, 201)}
    total = mpmath.fsum(weight.values())
    for order in ORDERS[:-1]:
        pairs = [(weight[k] / total, weight[k - 1] / total) for k in range(-199, 201)]
        assert _divergence(order, pairs) <= found.rho * order
    assert found.rho == pytest.approx(0.5 / sigma**2, rel=2e-14) and math.isinf(found.mu)


def test_gaussian_noise_has_the_mu_of_all_rounds() -> None:
    three = md.Sensitivity(linf=2.0, l0=3)
    result = md.Calibration("gaussian", md.ApproximateDP(1.0, 1e-6), three, dimension=20, rounds=12).solve()
    sigma = Fraction(float(result.mechanism.law.kwds["scale"]))
    found, true = consumption(result), Fraction(12 * 12) / sigma**2
    assert true <= Fraction(found.mu) ** 2 <= true * (1 + Fraction(1, 10**14))
    assert true / 2 <= Fraction(found.rho) <= true / 2 * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize(
    "design",
    [
        md.NoiseAllocation("laplace", [1.0, 2.0, 0.0, 30.0], md.PureDP(1.0)),
        md.NoiseAllocation("laplace", [1.0, 2.0, 3.0], md.ApproximateDP(1.0, 1e-6)),
        pytest.param(
            md.NoiseAllocation("mixed", [1.0] * 20 + [10.0], md.ApproximateDP(1.0, 1e-6)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_allocations_consume_no_less_than_their_divergence(design: md.NoiseAllocation) -> None:
    result = design.solve()
    law, found = result.mechanism, consumption(result)
    moved = law.sensitivities > 0
    ratio = law.sensitivities[moved] / law.scales[moved]
    laplace = np.broadcast_to(getattr(law, "laplace", True), moved.shape)[moved]
    for order in ORDERS:
        true = (
            sum(_laplace_divergence(order, r) for r in ratio[laplace])
            + order / 2 * (ratio[~laplace] ** 2).sum()
        )
        assert true <= found.rho * order
    assert found.rho <= (ratio**2).sum() / 2 * (1 + 1e-6)
    assert math.isinf(found.epsilon) if (~laplace).any() else found.epsilon >= ratio.sum() * (1 - 1e-12)


@given(st.floats(1e-6, 40), st.integers(1, 5), st.floats(1e-6, 40))
def test_parts_add_up_and_are_rounded_up(loss: float, times: int, square: float) -> None:
    pure, normal = Consumption.pure((loss, times)), Consumption.gaussian(square)
    assert Fraction(pure.epsilon) >= Fraction(loss) * times
    assert Fraction(normal.mu) ** 2 >= Fraction(square) and Fraction(normal.rho) * 2 >= Fraction(square)
    both, four = pure + normal, normal + normal
    assert math.isinf(both.epsilon) and math.isinf(both.mu)
    assert Fraction(both.rho) >= Fraction(pure.rho) + Fraction(normal.rho)
    assert Fraction(four.mu) ** 2 >= 2 * Fraction(normal.mu) ** 2 and four.mu <= math.sqrt(2) * normal.mu * (
        1 + 1e-14
    )
    # two answers of randomized response: no pair of this loss is further apart
    p = 1 / (1 + mpmath.exp(-mpmath.mpf(loss)))
    for order in ORDERS[1:6]:
        assert times * _divergence(order, [(p, 1 - p), (1 - p, p)]) <= pure.rho * order


@given(st.floats(0.01, 20), st.floats(-14, -1))
@settings(max_examples=50)
def test_the_rho_of_a_budget_implies_it_and_is_next_to_the_largest(epsilon: float, exponent: float) -> None:
    delta = 10.0**exponent
    rho = concentrated(md.ApproximateDP(epsilon, delta))

    def log_delta(rho: float) -> float:
        a = 1 + np.exp(np.linspace(-12, 25, 20_001))
        return float(np.min((a - 1) * (a * rho - epsilon) + (a - 1) * np.log((a - 1) / a) - np.log(a)))

    assert log_delta(rho) <= math.log(delta) + 1e-5 * epsilon / rho
    assert log_delta(rho * (1 + 1e-6)) > math.log(delta) - 1e-5
    # the census published ρ = 2.63
    assert concentrated(md.ApproximateDP(17.430585, 1e-10)) == pytest.approx(2.63, rel=1e-6)
    # Gaussian noise of this ρ keeps the budget by its exact profile
    assert md.accounting.gaussian_profile(epsilon, math.sqrt(2 * rho)) <= delta


# -- never above the budget ------------------------------------------------------------------------------

numbers = st.sampled_from([0.1, 0.2, 0.25, 1 / 3, 1e-3, 5e-324, 0.7, 1.0, 3.0, math.inf])


@pytest.mark.slow
@given(
    st.sampled_from(
        [md.PureDP(1.0), md.ZeroConcentratedDP(0.7), md.GaussianDP(1.0), md.ApproximateDP(2.0, 1e-6)]
    ),
    st.lists(st.tuples(numbers, numbers, numbers, st.booleans(), st.sampled_from([1, 1, 3])), max_size=12),
)
@settings(max_examples=100)
def test_what_is_let_in_keeps_the_budget_and_what_is_refused_would_not(
    tmp_path_factory, budget, asked
) -> None:
    """By a sum of its own in rational numbers, over entries that say anything."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    limit = concentrated(budget) if hasattr(budget, "delta") else next(iter(vars(budget).values()))
    power = 2 if hasattr(budget, "mu") else 1
    at = {"epsilon": 0, "rho": 1, "mu": 2}.get(next(iter(vars(budget))), 0)
    at = 1 if hasattr(budget, "delta") else at
    result, held, first = count(md.PureDP(2.0)), Fraction(0), None
    with pytest.MonkeyPatch.context() as patch:
        for k, (*values, small, rounds) in enumerate(asked):
            stated = (2.0, 1e-6 if small else 1e-5)
            consumes = Consumption(*values, statement=stated)
            made = replace(result, design=replace(result.design, rounds=rounds))
            patch.setattr(
                module, "_certified", lambda _, c=consumes, k=k: (Claim("", PROVED, 0.0, True), c, str(k))
            )
            value, alone = values[at], first is None and hasattr(budget, "delta") and small
            amount = None if math.isinf(value) else Fraction(value) ** power
            fits = first != "alone" and amount is not None and held + amount <= Fraction(limit) ** power
            entry = Ledger(path, budget)  # read anew each time
            if fits or alone:
                for _ in range(rounds):
                    entry.charge(made)
                held += amount or 0
                first = first or ("alone" if amount is None else "counted")
                if rounds > 1:
                    with pytest.raises(md.DesignError, match="have all been released"):
                        entry.charge(made)
            else:
                before = path.read_bytes()
                with pytest.raises(md.DesignError, match=r"^ledger = "):
                    entry.charge(made)
                assert path.read_bytes() == before
            left = entry.left()
            if first is not None:
                room = Fraction(limit) ** power - held if first != "alone" else Fraction(0)
                given_back = (
                    Fraction(0) if left is None else Fraction(next(iter(vars(left).values()))) ** power
                )
                assert given_back <= max(room, 0) and (
                    left is None or given_back >= room * (1 - Fraction(1, 10**15))
                )


def _pld(result: md.Result):
    """Of the law that is deployed, from below, by Google's accountant."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    law, options = (
        result.mechanism.law,
        {"pessimistic_estimate": False, "value_discretization_interval": 1e-3},
    )
    name = law.dist.name
    if name == "norm":
        made = pld.from_gaussian_mechanism(float(law.kwds["scale"]), **options)
    elif name == "laplace":
        made = pld.from_laplace_mechanism(float(law.kwds["scale"]), **options)
    elif name == "dlaplace":
        made = pld.from_discrete_laplace_mechanism(float(law.args[0]), 1, **options)
    else:
        made = pld.from_discrete_gaussian_mechanism(float(law.args[0]), 1, **options)
    return made.self_compose(result.mechanism.rounds) if result.mechanism.rounds > 1 else made


@pytest.mark.slow
@given(
    st.sampled_from([(1.0, 1e-6), (3.0, 1e-4), (0.5, 1e-9)]),
    st.lists(
        st.tuples(
            st.sampled_from(["gaussian", "laplace", "discrete_laplace", "discrete_gaussian"]),
            st.floats(0.05, 1.2),
            st.sampled_from([1, 3]),
        ),
        min_size=2,
        max_size=6,
    ),
)
@settings(max_examples=20)
def test_releases_chosen_in_view_of_answers_keep_the_budget_by_another_accountant(
    tmp_path_factory, budget, steps
) -> None:
    """Each step asks for a share of what is left that depends on the answer before."""
    pytest.importorskip("dp_accounting")
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "ledger.jsonl", md.ApproximateDP(*budget))
    composed, last = None, 0.0
    for noise, share, rounds in steps:
        left = ledger.left()
        if left is None:
            break
        share *= 1.0 if last >= 0 else 0.5
        if isinstance(left, md.ApproximateDP):
            wanted: object = md.ApproximateDP(left.epsilon * min(share, 1.0), left.delta)
        else:
            wanted = md.ZeroConcentratedDP(left.rho * share)
        result = md.calibrate(noise, privacy=wanted, sensitivity=1, rounds=rounds)
        try:
            for _ in range(rounds):
                last = float(result.release(0, ledger=ledger).answer)
        except md.DesignError as error:
            assert "left, and this result needs" in str(error) and share > 0.99
            continue
        made = _pld(result)
        composed = made if composed is None else composed.compose(made)
    assert composed is not None
    assert composed.get_delta_for_epsilon(budget[0]) <= budget[1]


def test_a_plan_that_is_alone_counts_by_its_certificate_and_by_rho_with_others(tmp_path: Path) -> None:
    whole, half = md.ApproximateDP(1.0, 1e-6), md.ApproximateDP(0.5, 1e-6)
    ledger = Ledger(tmp_path / "alone.jsonl", whole)
    assert ledger.left() == whole
    made_for_it = normal(whole)
    assert consumption(made_for_it).rho > concentrated(whole)  # ρ would refuse it
    made_for_it.release(1.0, ledger=ledger)
    assert ledger.left() is None
    with pytest.raises(md.DesignError, match=r"has 0\.0 of ρ left"):
        normal(md.ZeroConcentratedDP(1e-6)).release(1.0, ledger=ledger)
    ledger = Ledger(tmp_path / "two.jsonl", whole)
    normal(half).release(1.0, ledger=ledger)
    assert ledger.left().rho == pytest.approx(concentrated(whole) - consumption(normal(half)).rho)
    normal(md.ZeroConcentratedDP(ledger.left().rho)).release(1.0, ledger=ledger)
    with pytest.raises(md.DesignError, match="which the certificate of this result does not keep"):
        normal(md.ApproximateDP(1.0, 2e-6)).release(1.0, ledger=Ledger(tmp_path / "three.jsonl", whole))


@pytest.mark.parametrize(
    ("budget", "result", "allowed"),
    [
        (md.PureDP(1.0), normal(md.ZeroConcentratedDP(1e-3)), None),
        (md.PureDP(1.0), count(), 4),
        (md.ZeroConcentratedDP(0.5), normal(md.ZeroConcentratedDP(0.125)), 4),
        (md.GaussianDP(1.0), normal(md.ZeroConcentratedDP(0.125)), 4),
        (md.GaussianDP(1.0), count(), None),
    ],
)
def test_a_ledger_of_each_currency(
    tmp_path: Path, budget: object, result: md.Result, allowed: int | None
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", budget)
    if allowed is None:
        with pytest.raises(md.DesignError, match=r"adds up .*, and none is proved of this result"):
            result.release(5, ledger=ledger)
        assert ledger.left() == budget
        return
    for _ in range(allowed):
        result.release(5, ledger=ledger)
    with pytest.raises(md.DesignError, match="left, and this result needs"):
        result.release(5, ledger=ledger)
    assert type(Ledger(tmp_path / "ledger.jsonl", budget).left()) in (type(budget), md.PureDP, type(None))


# -- kills, processes, disks -----------------------------------------------------------------------------


def _child(work: Callable[[int], None]) -> tuple[int, int]:
    """Run in a process of its own; its id, and where what it writes is read."""
    read, write = os.pipe()
    if (process := os.fork()) == 0:
        try:
            os.close(read)
            work(write)
        finally:
            os._exit(0)
    os.close(write)
    return process, read


def _text(read: int) -> str:
    with os.fdopen(read, encoding="utf-8") as file:
        return file.read()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_thirty_kills_in_mid_release(tmp_path: Path) -> None:
    """Every answer that came out has its entry; entries without an answer there may be."""
    path, rng = tmp_path / "ledger.jsonl", random.Random(7)
    small = count(md.PureDP(2.0**-12))
    Ledger(path, md.PureDP(1.0))
    small.release(0, ledger=Ledger(tmp_path / "warm.jsonl", md.PureDP(1.0)))

    def work(write: int) -> None:
        ledger = Ledger(path)
        while True:
            released = small.release(100, ledger=ledger)
            os.write(write, f"{released.entry} {released.hash}\n".encode())

    answered: list[str] = []
    for _ in range(30):
        process, read = _child(work)
        os.read(read, 1)  # in full swing
        time.sleep(rng.uniform(0.0, 0.01))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        answered += [line.split()[-1] for line in _text(read).splitlines()]
    ledger = Ledger(path)
    entered = set(ledger.to_frame()["hash"])
    assert len(answered) >= 30 and set(answered) <= entered and len(set(answered)) == len(answered)
    assert len(entered) <= 4096 and ledger.left().epsilon == pytest.approx(1 - len(entered) / 4096)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_at_once_never_go_above_the_budget(tmp_path: Path) -> None:
    path, small = tmp_path / "ledger.jsonl", count(md.PureDP(1 / 64))
    each = Fraction(consumption(small).epsilon)
    Ledger(path, md.PureDP(1.0))

    def work(write: int) -> None:
        ledger, done = Ledger(path), 0
        try:
            while True:
                small.release(100, ledger=ledger)
                done += 1
        except md.DesignError as error:
            os.write(write, f"{done} {error}".encode())

    running = [_child(work) for _ in range(4)]
    said = [_text(read) for _, read in running]
    for process, _ in running:
        os.waitpid(process, 0)
    assert all("left, and this result needs" in text for text in said)
    assert sum(int(text.split()[0]) for text in said) == len(Ledger(path).to_frame()) == int(1 / each) == 64


def test_a_write_that_was_cut_short_is_no_entry_and_disturbs_none(tmp_path: Path, quarter: md.Result) -> None:
    path = tmp_path / "ledger.jsonl"
    quarter.release(1, ledger=Ledger(path, md.PureDP(1.0)))
    head, line = path.read_bytes().splitlines(keepends=True)
    for cut in [*range(0, len(line), 7), len(line) - 2]:
        path.write_bytes(head + line[:cut])
        assert Ledger(path).left() == md.PureDP(1.0)
        ledger = Ledger(path)
        assert quarter.release(1, ledger=ledger).entry == 1
        assert len(Ledger(path).to_frame()) == 1
    path.write_bytes(head + line[:-1])  # all but its end of line: the hash is there
    assert quarter.release(1, ledger=Ledger(path)).entry == 2
    assert Ledger(path).to_frame()["entry"].tolist() == [1, 2]
    path.write_bytes(head[:20])
    with pytest.raises(md.DesignError, match="budget = None: must be a PureDP"):
        Ledger(path)
    assert Ledger(path, md.PureDP(2.0)).left() == md.PureDP(2.0)


def test_the_entry_is_on_the_disk_before_any_noise_is_drawn(
    tmp_path: Path, quarter: md.Result, monkeypatch
) -> None:
    path, events = tmp_path / "ledger.jsonl", []
    ledger = Ledger(path, md.PureDP(1.0))
    urandom, fsync = os.urandom, os.fsync
    monkeypatch.setattr(
        os, "urandom", lambda n: (events.append(f"draw {len(path.read_bytes().splitlines())}"), urandom(n))[1]
    )
    monkeypatch.setattr(os, "fsync", lambda f: (events.append("sync"), fsync(f))[1])
    quarter.release([1, 2, 3], ledger=ledger, disjoint=True)
    assert events[:2] == ["sync", "draw 2"] and set(events[1:]) == {"draw 2"}


def test_nothing_is_drawn_where_the_disk_does_not_take_the_entry(
    tmp_path: Path, quarter: md.Result, monkeypatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", md.PureDP(1.0))
    before = ledger.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(os, "urandom", lambda n: pytest.fail("drawn"))
        with pytest.raises(md.DesignError, match=r"No space left on device.: nothing is released"):
            quarter.release(1, ledger=ledger)
    quarter.release(1, ledger=ledger)
    assert ledger.path.read_bytes().startswith(before) and len(ledger.to_frame()) in (1, 2)


# -- a ledger that was edited ----------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path, quarter: md.Result) -> tuple[Path, list[Released]]:
    ledger = Ledger(tmp_path / "ledger.jsonl", md.PureDP(1.0))
    return ledger.path, [quarter.release(10 * k, ledger=ledger) for k in range(3)]


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_is_refused_by_its_line(
    tmp_path_factory, quarter: md.Result, place: int, value: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "edited.jsonl"
    if not path.exists() or place == 0:
        path.unlink(missing_ok=True)
        ledger = Ledger(path, md.PureDP(1.0))
        for k in range(3):
            quarter.release(k, ledger=ledger)
        path.with_suffix(".good").write_bytes(path.read_bytes())
    good = path.with_suffix(".good").read_bytes()
    place %= len(good) - 1  # all but the last end of line
    if good[place] == value:
        return
    path.write_bytes(good[:place] + bytes([value]) + good[place + 1 :])
    line = good[: place + 1].count(b"\n") + (good[place] != 10)
    with pytest.raises(md.ResultFormatError, match=rf"edited.jsonl, line {line}: does not follow"):
        Ledger(path)


def test_lines_that_are_left_out_or_moved_are_refused(written: tuple[Path, list[Released]]) -> None:
    path, _ = written
    head, *lines = path.read_bytes().splitlines(keepends=True)
    for bad, line in (([lines[0], lines[2]], 3), ([lines[1], lines[0], lines[2]], 2)):
        path.write_bytes(head + b"".join(bad))
        with pytest.raises(md.ResultFormatError, match=f"line {line}: does not follow from the line before"):
            Ledger(path)


def test_a_missing_end_shows_against_the_hash_of_an_answer(
    written: tuple[Path, list[Released]], quarter
) -> None:
    path, answers = written
    open_before = Ledger(path)
    assert all(answer.hash in open_before for answer in answers) and answers[-1].hash == open_before.hash
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    again = Ledger(path)
    assert answers[1].hash in again and answers[2].hash not in again
    with pytest.raises(md.ResultFormatError, match=r"is without line 4, which was there: cut off"):
        quarter.release(1, ledger=open_before)


def test_an_old_file_that_was_put_back_and_written_on_is_refused(
    written: tuple[Path, list[Released]],
) -> None:
    """By who knows the line that is lost, where the new one is as long."""
    path, _ = written
    open_before, size = Ledger(path), path.stat().st_size
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    other = count()
    other.release(1, ledger=Ledger(path))
    assert path.stat().st_size == size and open_before.hash not in Ledger(path)
    with pytest.raises(md.ResultFormatError, match=r"line 4, which was there: cut off"):
        other.release(1, ledger=open_before)
    assert path.stat().st_size == size


def test_a_release_of_all_rounds_at_once_takes_none_of_those_that_are_paid(tmp_path: Path) -> None:
    result = md.Plan({"a": md.Count()}, md.PureDP(0.25), rounds=2).solve()
    ledger = Ledger(tmp_path / "ledger.jsonl", md.PureDP(0.5))
    result.release({"a": 1}, ledger=ledger)
    assert ledger.charge(result, whole=True).entry == 2
    second = result.release({"a": 1}, ledger=ledger)
    assert (second.entry, second.round) == (1, 2)
    with pytest.raises(md.DesignError, match="rounds"):
        result.release({"a": 1}, ledger=ledger)


# -- bad input: a sentence, nothing released, nothing lost -----------------------------------------------


def test_bad_input_is_refused_and_enters_nothing(
    written: tuple[Path, list[Released]], quarter: md.Result
) -> None:
    path, _ = written
    before, ledger = path.read_bytes(), Ledger(path)
    local, places, vector = map(cheap.solved, ("optimal-quantizer", "metric-channel", "vectors"))
    replaced = md.calibrate(
        "laplace", privacy=md.PureDP(0.01), sensitivity=md.Sensitivity(linf=1.0, neighbours="replace")
    )
    doctored = replace(quarter, mechanism=replace(quarter.mechanism, law=stats.dlaplace(2.0)))
    bare = md.calibrate("laplace", privacy=PURE, sensitivity=1.0).design.solve(certify=False)
    for result, x, message in (
        (quarter, math.nan, "must be finite"),
        (quarter, 1.5, "must be whole numbers"),
        (quarter, "many", "must be"),
        (quarter, [[1, 2], [3, 4]], "must be one answer"),
        (local, 0.3, "makes reports of one person each"),
        (places, 1, "makes reports of one person each"),
        (vector, [1] + 19 * [0], "makes reports of one person each"),
        (replaced, 1.0, "protects neighbours by 'add-remove', and this result by 'replace'"),
        (doctored, 1, r"must be certified; PureDP\(epsilon=0.25\) is kept fails"),
        (bare, 1.0, r"must be certified; solve it with certify=True"),
        (count(md.PureDP(0.5)), 1, r"has 0.25\d* of pure ε left, and this result needs 0.49\d*"),
    ):
        with pytest.raises(md.DesignError, match=message):
            result.release(x, ledger=ledger)
        assert path.read_bytes() == before
    with pytest.raises(md.DesignError, match="must be a Result"):
        ledger.charge(quarter.mechanism)
    assert quarter.release(1, ledger=ledger).entry == 4


def test_nothing_else_is_written_over_a_ledger(quarter: md.Result, tmp_path: Path) -> None:
    path, other = tmp_path / "ledger.jsonl", tmp_path / "other.json"
    ledger = md.Ledger(path, md.PureDP(1.0))
    quarter.release(5, ledger=ledger)
    held = path.read_bytes()
    other.symlink_to(path)
    for write in (ledger.report, quarter.save, quarter.report, quarter.to_csv):
        for target in (path, other):
            with pytest.raises(md.DesignError, match="holds a ledger"):
                write(target)
    assert path.read_bytes() == held


def test_a_ledger_keeps_the_budget_it_was_opened_with(written: tuple[Path, list[Released]]) -> None:
    path, _ = written
    with pytest.raises(md.DesignError, match=r"is not that of the ledger: PureDP\(epsilon=1.0\)"):
        Ledger(path, md.PureDP(2.0))
    with pytest.raises(md.DesignError, match="not a file"):  # of /dev/zero all was read, without end
        Ledger("/dev/null", md.PureDP(1.0))


@pytest.mark.parametrize(
    "budget", [md.PureDP(1.0), md.ZeroConcentratedDP(0.1), md.GaussianDP(1.0), md.ApproximateDP(1.0, 1e-6)]
)
def test_a_reserve_is_let_in_after_all_rounds_of_a_plan_and_no_more(budget: Any, tmp_path: Path) -> None:
    plan = md.Plan({"a": md.Count(), "b": md.Sum(5.0)}, budget, rounds=2, reserve=0.1).solve()
    assert plan.certificate.verify()
    currency = {"epsilon": "pure ε", "rho": "ρ", "mu": "μ²"}[worth(budget)[0]]
    for told in (str(plan), plan.question(), str(loads(dumps(plan)))):
        [line] = [line for line in told.splitlines() if "ept for what is asked later" in line]
        assert float(line.split()[6]) == pytest.approx(worth(budget)[1] / 10, rel=1e-5)
        assert f"of {currency}," in line
    ledger = md.Ledger(tmp_path / "ledger.jsonl", budget)
    for _ in range(2):
        plan.release({"a": 100, "b": 80.0}, ledger=ledger)
    left = ledger.left()
    [share] = {getattr(left, n) / 1.0 for n in ("epsilon", "rho", "mu") if hasattr(left, n)}
    whole = concentrated(budget) if hasattr(budget, "delta") else next(iter(vars(budget).values()))
    power = 2 if hasattr(budget, "mu") else 1
    assert (share / whole) ** power == pytest.approx(0.1, rel=1e-3) and (share / whole) ** power >= 0.1 * (
        1 - 1e-12
    )
    with pytest.raises(md.DesignError, match="reserve= keeps a share"):
        ledger.charge(md.Plan({"a": md.Count()}, budget, reserve=0.85).solve())
    ledger.charge(md.Plan({"a": md.Count()}, budget, reserve=0.9001).solve())


# -- An entry is one answer of the design's dimension, and it states whom it protects


BUDGET = md.ApproximateDP(100.0, 0.5)
OTHER = {"add-remove": "replace", "replace": "add-remove"}
TERM_BY_TERM = "joint-calibration"
COUNTED = [
    name
    for name, (made, _) in cheap.DESIGNS.items()
    if name != TERM_BY_TERM and (made().asks == "numbers" or made().central)
]
TOGETHER = [name for name in COUNTED if cheap.DESIGNS[name][0]().answer_size]


def protecting(neighbours: str) -> md.Result:
    bounds = md.Sensitivity(linf=1, neighbours=neighbours)
    return md.calibrate("gaussian", privacy=md.ZeroConcentratedDP(0.001), sensitivity=bounds)


class Fickle:
    """One answer when it is read first, and many when it is read again."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        self.read += 1
        return np.zeros(self.size if self.read == 1 else 1000 * self.size)


# -- one answer ------------------------------------------------------------------------------------------


def test_terms_of_a_joint_calibration_are_entered_all_at_once(tmp_path: Path) -> None:
    ledger = md.Ledger(tmp_path / "ledger.jsonl", BUDGET)
    with pytest.raises(md.DesignError, match="must be released term by term"):
        cheap.solved(TERM_BY_TERM).release([1], ledger=ledger)
    assert ledger.to_frame().empty
    both = [
        md.AdditiveNoise(stats.norm(scale=8), 1.0, rounds=3),
        md.AdditiveNoise(stats.laplace(scale=10), 1.0),
    ]
    law = md.calibrate(terms=both, privacy=md.ApproximateDP(1, 1e-6)).mechanism
    assert law.consumption().rho == pytest.approx(sum(n.consumption().rho for n in law.noises))


@pytest.mark.parametrize("name", TOGETHER)
def test_an_entry_is_one_answer_whatever_the_mechanism(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    result, path = cheap.solved(name), tmp_path / "ledger.jsonl"
    size, ledger = result.design.answer_size, md.Ledger(path, BUDGET)
    opened = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("os.urandom", lambda _: pytest.fail("drawn"))
        for x in (np.zeros((2, size)), [[3] * size] * 50, np.zeros(size + 1), []):
            with pytest.raises(
                md.DesignError, match="must be one answer of the design's dimension"
            ) as refused:
                result.release(x, ledger=ledger)
            assert "disjoint=True" in str(refused.value)
    assert path.read_bytes() == opened
    held = Fickle(size)
    found = result.release(held, ledger=ledger)
    assert held.read == 1 and np.size(found.answer) == size and found.entry == 1
    assert ledger.to_frame()[["answers", "disjoint"]].to_numpy().tolist() == [[1, False]]


def test_who_is_replaced_may_be_in_two_groups(tmp_path: Path) -> None:
    with pytest.raises(md.DesignError, match='needs neighbours="add-remove"'):
        protecting("replace").release(
            [1, 2], ledger=md.Ledger(tmp_path / "ledger.jsonl", BUDGET), disjoint=True
        )


# -- whom it protects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COUNTED)
def test_a_ledger_holds_releases_for_neighbours_of_one_kind(name: str, tmp_path: Path) -> None:
    result = cheap.solved(name)
    own = result.design.consumption(result).neighbours
    other = protecting(OTHER[own])
    opened, begun = (md.Ledger(tmp_path / f"{k}.jsonl", BUDGET) for k in range(2))
    opened.charge(other)
    with pytest.raises(
        md.DesignError, match=f"protects neighbours by '{OTHER[own]}', and this result by '{own}'"
    ):
        opened.charge(result)
    begun.charge(result)
    with pytest.raises(md.DesignError, match=f"protects neighbours by '{own}'"):
        begun.charge(other)
    assert (len(opened.to_frame()), begun.to_frame()["neighbours"].tolist()) == (1, [own])
    assert f"{own} neighbours" in str(result) or own == "replace"


@pytest.mark.parametrize("name", [name for name in COUNTED if not name.startswith("user")])
def test_a_design_states_either_kind_of_neighbours(name: str) -> None:
    if name == "covariance-problem":  # its unknown does
        assert md.Covariance(np.eye(2), neighbours="replace").neighbours == "replace"
        return
    if name == "lattice-problem":
        p = md.LatticeNoise(1, 3, integer=True, tails=1.0, neighbours="replace")
        problem = md.Problem(md.Minimize(p.expected("squared")), [p.private(md.PureDP(1.0))])
        assert problem.neighbours == "replace"
        return
    if name == "scales-problem":
        s = md.Scales([1.0], neighbours="replace")
        problem = md.Problem(md.Minimize(s.expected()), [s.private(md.GaussianDP(1.0))])
        assert problem.neighbours == problem.protection().changes.neighbours == "replace"
        return
    design = cheap.DESIGNS[name][0]()
    if name.startswith("private-choice"):  # its votes do
        assert dataclasses.replace(design, neighbours="replaced vote").relation == "replace"
        return
    if any(field.name == "neighbours" for field in dataclasses.fields(design)):
        made = dataclasses.replace(design, neighbours="replace")
    else:
        bounds = md.Sensitivity(linf=1, neighbours="replace")
        made = dataclasses.replace(design, sensitivity=bounds)
    assert (design.neighbours, made.neighbours) == ("add-remove", "replace")


@pytest.mark.parametrize(
    "design",
    [
        lambda bounds: md.OptimalNoise(md.PureDP(1), bounds, dimension=2),
        lambda bounds: md.noise.KNorm(2, md.PureDP(1), bounds),
        lambda bounds: md.NoiseAllocation("laplace", bounds, md.PureDP(1)),
        lambda bounds: md.NoiseAllocation.of_sensitivity("laplace", bounds, 2, md.PureDP(1)),
        lambda bounds: md.CorrelatedGaussian(bounds, md.ZeroConcentratedDP(1)),
        lambda bounds: md.CorrelatedGaussian.of_sensitivity(bounds, 2, md.ZeroConcentratedDP(1)),
    ],
)
def test_bounds_hand_on_whom_they_are_for(design: Any) -> None:
    bounds = md.Sensitivity(each=[1.0, 1.0], neighbours="replace")
    assert design(bounds).neighbours == "replace"
    counts = md.Sensitivity(linf=1, neighbours="replace")
    assert md.CorrelatedGaussian.of_sensitivity(counts, 2, md.ZeroConcentratedDP(1)).neighbours == "replace"
    with pytest.raises(md.DesignError, match="neighbours = 'replace': must be those of the bounds"):
        md.OptimalNoise(md.PureDP(1), md.Sensitivity(linf=1), neighbours="replace")
