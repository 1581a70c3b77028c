"""What a person holds after solving: prints, tables, files that two checkers read, draws, copies, a ledger's entry."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import highspy
import jsonschema
import numpy as np
import pytest

import mechdesign as md
import mechdesign.verifier.table
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import dumps, result_schema
from mechdesign.plan.ledger import consumption
from mechdesign.verifier.arithmetic import exp_bounds
from mechdesign.verifier.reading import Refused
from mechdesign.verifier.verify import verify

X, Y = [-1, -0.5, 0, 0.5, 1], [-3, -0.5, 0.5, 3]
PURE = md.PureDP(1.0)


def problem(privacy: Any = PURE, **options: Any) -> md.Problem:
    P = md.Table(X, Y)
    constraints = [P.private(privacy, **options), P.unbiased(), md.named("cap", P[:, 1] <= 0.2)]
    return md.Problem(md.Minimize(P.expected("absolute")), constraints)


def convex() -> md.Problem:
    P = md.Table(X, Y)
    rows = [P.private(md.PureDP(1.0)), P.unbiased(), cp.sum_largest(P[:, 0], 2) <= 0.9]
    return md.Problem(md.Minimize(P.worst() + 0.3 * cp.norm1(P[0] - P[4])), rows)


def places() -> md.Problem:
    space = md.MetricSpace.grid(2, 2)
    P = md.Table(space.points, space.points)
    return md.Problem(md.Minimize(P.expected()), [P.private(md.MetricDP(1.0, metric=space))])


def names() -> md.Problem:
    P = md.Table(["a", "b", "c"], ["no", "yes"])
    loss = lambda x, y: float((x == "a") != (y == "yes"))  # noqa: E731
    pairs = [("a", "b"), ("b", "c")]
    return md.Problem(md.Minimize(P.expected(loss)), [P.private(md.PureDP(1.0), between=pairs)])


def extended(design: Any, output: int, most: float) -> md.Problem:
    problem: Any = design.problem()
    found: md.Problem = problem.subject_to(md.named("cap", problem.unknown[:, output] <= most))
    return found


def channel(names: list[str] | None = None) -> md.Problem:
    space = md.MetricSpace.euclidean([[0, 0], [1, 0], [2, 2]], unit="km", names=names or ())
    return extended(md.MetricChannel(space, 0.7), 1, 0.4)


KINDS: dict[str, Callable[[], md.Problem]] = {
    "pure": problem,
    "delta": lambda: problem(md.ApproximateDP(1.0, 0.01)),
    "trade-off": lambda: problem(md.TradeOff([(0, 0.5), (1.0, 0.01)]), between="adjacent"),
    "metric": lambda: problem(md.MetricDP(1.0)),
    "convex": convex,
    "places": places,
    "names": names,
    "a channel, extended": lambda: channel(["home", "work", "gym"]),
    "a count, extended": lambda: extended(md.BoundedCount(5, PURE), 0, 0.6),
}


@pytest.mark.parametrize("kind", KINDS)
def test_file(kind: str, tmp_path: Path) -> None:
    result = KINDS[kind]().solve()
    file = tmp_path / "result.json"
    result.save(file)
    text = file.read_text()
    jsonschema.validate(json.loads(text), result_schema())
    account = verify(text)
    assert all(holds for *_, holds in account.rows) and account.weakest == "proved"
    loaded = md.load(file)
    assert dumps(loaded) == text and loaded.checks()["holds"].all() and str(loaded) == str(result)
    again = loaded.design.subject_to(md.named("rare", loaded.design.unknown[:, 0] <= 0.9)).solve()
    assert again.value >= result.lower_bound


@pytest.mark.parametrize("names", [["home", "work", "gym"], None])
def test_an_extended_channel_speaks_of_its_places(names: list[str] | None, tmp_path: Path) -> None:
    """Labels, unit, map, and how far reports are from the truth: in kilometres, whether places have names or numbers."""
    result = channel(names).solve()
    given: list[Any] = names or [0, 1, 2]
    off = result.design.space.distances  # type: ignore[attr-defined]
    mean = float((result.mechanism.probabilities * off).sum() / 3)
    assert result.errors().absolute_error == pytest.approx(mean) == pytest.approx(result.value)
    assert "ε = 0.7 per km" in str(result) and "distance to the truth (km)" in str(result.design)
    assert result.to_frame()["input"].tolist() == given and set(result.release(given)) <= set(given)
    result.save(tmp_path / "result.json")
    for one in (result, md.load(tmp_path / "result.json")):
        assert "(km)" in one.plot().axes[0].get_xlabel() and "map" in one.design.describe(one).picture


def test_whole_numbers_stay_whole() -> None:
    """An extended count answers by integers, as the count does."""
    result = KINDS["a count, extended"]().solve()
    assert type(result.release(3)) is int and result.to_frame()["input"].tolist() == [*range(6)]


@pytest.mark.parametrize("kind", ["pure", "delta", "metric", "convex"])
def test_both_checkers_refuse_what_is_changed(kind: str) -> None:
    """Each claim leans on each of its parts: a number moved to the better side breaks it."""
    result = KINDS[kind]().solve()
    rows = [list(row) for row in result.mechanism.weights]
    place = int(result.mechanism.probabilities[0].argmax())
    moved = rows[0][place] // 100
    rows[0][place] -= moved
    rows[0][(place + 1) % len(rows[0])] += moved
    law = md.model.TableMechanism(result.mechanism.inputs, result.mechanism.outputs, tuple(map(tuple, rows)))
    assert result.lower_bound is not None
    for change in (
        {"mechanism": law},
        {"value": result.value * (1 - 1e-6)},
        {"lower_bound": result.lower_bound + 1e-6},
        {"proofs": result.proofs[:1]},
        {"proofs": result.proofs[1:]},
    ):
        altered = md.Result(
            **{**{name: getattr(result, name) for name in result.__dataclass_fields__}, **change}
        )
        assert not altered.checks()["holds"].all(), change
        with contextlib.suppress(Refused):
            assert not all(holds for *_, holds in verify(dumps(altered)).rows), change


@pytest.mark.parametrize("between", ["all", "adjacent"])
@pytest.mark.parametrize("side", [0, 1])
def test_the_verifier_takes_the_harmful_end(side: int, between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = dumps(problem(between=between).solve())

    def widened(x: Any, bits: int = 320) -> tuple[Fraction, Fraction]:
        low, high = exp_bounds(x, bits)
        return (low, high * 1001 / 1000) if side else (low * 999 / 1000, high)

    monkeypatch.setattr(mechdesign.verifier.table, "exp_bounds", widened)
    try:
        failed = [claim for claim, _, holds in verify(text).rows if not holds]
    except Refused as error:
        failed = [str(error)]
    assert len(failed) == 1 and failed[0].startswith(("no table", "multipliers") if side else "private")


def test_prints() -> None:
    made = problem()
    assert str(made).splitlines() == [
        "minimise    expected absolute error, over a uniform prior",
        "over        P[x, y] = Pr[output y | input x] >= 0, 5 inputs x 4 outputs, Σ_y P[x, y] = 1",
        "subject to  private: ε = 1, all pairs of inputs: P[x, y] <= e^ε P[x', y] (80 rows)",
        "            unbiased: -3 P[-1, -3] - 0.5 P[-1, -0.5] + 0.5 P[-1, 0.5] + 3 P[-1, 3] = -1 (5 rows, the first)",
        "            cap: P[-1, -0.5] <= 0.2 (5 rows, the first)",
    ]
    said = made._repr_latex_()
    assert (
        r"$P_{x, y}$ $\le$ $e^\varepsilon $ $P_{x', y}$" in said
        and r"cap: $P_{-1, -0.5}$ $\le$ 0.2 (5 rows, the first)" in said
    )
    assert "2 listed pairs only" in str(names())


@pytest.mark.parametrize("kind", KINDS)
def test_audit(kind: str) -> None:
    made = KINDS[kind]()
    table = made.solve().audit()
    assert list(table.columns) == AUDIT_COLUMNS and set(table["family"]) == {
        *made.declared.families(),
        "sums",
    }
    assert (table["slack"] >= -1e-12).all() and (table["dual"].dropna() >= 0).sum() > 0
    tight = table[(table["dual"] > 1e-6) & (table["family"] == "private")]
    assert (tight["slack"] < 1e-9).all()


def test_page_and_picture(tmp_path: Path) -> None:
    result = problem().solve()
    result.report(tmp_path / "page.html", author="A. Turing")
    page = (tmp_path / "page.html").read_text()
    assert "cap" in page and "unbiased" in page and "do not deploy" not in page
    assert result.plot().axes and len(result.to_frame()) == 5


def test_draws() -> None:
    result = problem().solve()
    drawn = result.release(np.array([[0.5, -1.0], [0.0, 1.0]]))
    assert drawn.shape == (2, 2) and set(drawn.ravel()) <= set(Y) and isinstance(result.release(0.5), float)
    sample = result.mechanism.sample(np.full(20_000, 0.5), rng=1)
    shares = [(sample == y).mean() for y in Y]
    assert np.allclose(shares, result.mechanism.probabilities[3], atol=0.02)
    assert names().solve().release(["a", "b"]).shape == (2,)
    assert places().solve().release([[0.0, 1.0], [1.0, 1.0]]).shape == (2, 2)
    for bad in (0.7, "a", [0.5, 7], None, True, [[0.5], [1, 2]], object()):
        with pytest.raises(md.DataError, match="inputs of the table") as error:
            result.release(bad)
        assert "7" not in str(error.value)


def test_what_rounds_to_an_input_is_none() -> None:
    law = md.model.TableMechanism((0.0, 2.0**53), ("a", "b"), ((3, 1), (1, 3)))
    assert law.release(2**53) in ("a", "b")
    with pytest.raises(md.DataError):
        law.release(2**53 + 1)


def test_written_for_other_programs(tmp_path: Path) -> None:
    file = tmp_path / "model.mps"
    problem(md.ApproximateDP(1.0, 0.01)).write(file)
    highs: Any = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(file))
    highs.run()
    assert highs.getObjectiveValue() == pytest.approx(
        problem(md.ApproximateDP(1.0, 0.01)).solve().value, rel=1e-7
    )


def test_a_ledger_counts_tables_of_data_and_no_others(tmp_path: Path) -> None:
    P = md.Table(range(5), range(5), of="data", neighbours="replace")
    asked = [
        P.private(md.ApproximateDP(1.0, 0.01), between="adjacent"),
        P.private(md.PureDP(2.0), between="adjacent"),
    ]
    spent = consumption(md.Problem(md.Minimize(P.worst()), asked).solve())
    assert spent.statement == (1.0, 0.01) and spent.epsilon == 2.0 and spent.neighbours == "replace"
    with pytest.raises(md.DesignError, match="one person"):
        consumption(problem().solve())


def test_a_release_is_entered_before_it_is_drawn(tmp_path: Path) -> None:
    votes = [(a, b) for a in range(3) for b in range(3)]
    P = md.Table(votes, ["a", "b"], of="data")
    near = [(x, y) for x in votes for y in votes if x < y and abs(x[0] - y[0]) + abs(x[1] - y[1]) == 1]
    regret = P.expected(lambda x, winner: max(x) - x["ab".index(winner)])
    result = md.Problem(md.Minimize(regret), [P.private(md.PureDP(1.0), between=near)]).solve()
    ledger = md.Ledger(tmp_path / "ledger.jsonl", md.PureDP(1.5))
    assert result.release((2, 0), ledger=ledger).answer in ("a", "b") and ledger.left() == md.PureDP(0.5)
    with pytest.raises(md.DesignError, match="left"):
        result.release((2, 0), ledger=ledger)
