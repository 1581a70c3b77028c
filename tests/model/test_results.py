"""What a person holds after solving: prints, tables, files that two checkers read, draws, copies, a ledger's entry."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cheap
import cvxpy as cp
import highspy
import jsonschema
import numpy as np
import pytest
from campaign import files
from campaign.trees import at
from campaign.trees import places as places_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
import mechdesign.verifier.table
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import dumps, loads, result_schema
from mechdesign.plan.ledger import consumption
from mechdesign.verifier.arithmetic import exp_bounds
from mechdesign.verifier.verify import verify
from tests.programs import refused

X, Y = [-1, -0.5, 0, 0.5, 1], [-3, -0.5, 0.5, 3]
PURE = md.PureDP(1.0)


def problem(privacy: Any = PURE, **options: Any) -> md.Problem:
    P = md.Table(X, Y)
    constraints = [P.private(privacy, **options), P.unbiased(), md.named("cap", P[:, 1] <= 0.2)]
    return md.Problem(md.Minimize(P.expected("absolute")), constraints)


def convex() -> md.Problem:
    P = md.Table(X, Y)
    rows = [P.private(PURE), P.unbiased(), cp.sum_largest(P[:, 0], 2) <= 0.9, cp.cumsum(P[4])[1] <= 0.3]
    return md.Problem(md.Minimize(P.worst() + 0.3 * cp.norm1(P[0] - P[4])), rows)


def curved() -> md.Problem:
    held = problem()
    return md.Problem(md.Minimize(cp.sum_squares(held.unknown)), held.constraints)


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


def test_points_of_a_curve_in_any_order_and_number_are_the_same_curve() -> None:
    """The verifier numbered the rows of noise by the points as they stood."""
    result = md.OptimalNoise(md.TradeOff([(0.5, 0.01), (1.0, 0.001)])).solve()
    first, last = '{"$tuple":[0.5,0.01]}', '{"$tuple":[1.0,0.001]}'
    text = dumps(result).replace(f"{first},{last}", f"{last},{first},{first}")
    changed = cheap.sealed(json.loads(text)["payload"])
    assert changed != dumps(result)
    assert loads(changed).checks()["holds"].all() and all(holds for *_, holds in verify(changed).rows)


@pytest.mark.parametrize("names", [["home", "work", "gym"], None])
def test_an_extended_channel_speaks_of_its_places(names: list[str] | None, tmp_path: Path) -> None:
    """Labels, unit, map, and how far reports are from the truth: in kilometres, whether places have names or numbers."""
    result = channel(names).solve()
    given: list[Any] = names or [0, 1, 2]
    off = result.design.space.distances  # type: ignore[attr-defined]
    mean = float((result.mechanism.probabilities * off).sum() / 3)
    assert result.errors().absolute_error == pytest.approx(mean) == pytest.approx(result.value)
    assert "α = 0.7 per km" in str(result) and "distance to the truth (km)" in str(result.design)
    assert result.to_frame()["input"].tolist() == given and set(result.release(given)) <= set(given)
    result.save(tmp_path / "result.json")
    for one in (result, md.load(tmp_path / "result.json")):
        assert "(km)" in one.plot().axes[0].get_xlabel() and "map" in one.design.describe(one).picture


@pytest.mark.parametrize(
    ("labels", "space"),
    [
        (["a", "b", "c"], md.MetricSpace.line([5, 0, 1], names=["c", "a", "b"])),
        ([0, 1, 5], md.MetricSpace.line([5, 0, 1])),
        ([(0.0, 0.0), (1.0, 0.0), (0.0, 5.0)], md.MetricSpace.euclidean([[0, 5], [0, 0], [1, 0]])),
    ],
)
def test_a_space_lists_the_inputs_in_any_order(labels: list[Any], space: md.MetricSpace) -> None:
    N = md.Table(labels, labels)
    result = md.Problem(md.Minimize(N.expected("error")), [N.private(md.MetricDP(1.0, space))]).solve()
    asked = result.design.declared.privacy[0]  # type: ignore[attr-defined]
    assert asked.distances[0].tolist() == [0, 1, 5]
    rows = result.mechanism.probabilities
    assert (rows <= np.exp(asked.distances)[:, :, None] * rows[:, None] * (1 + 1e-12)).all()
    assert result.mechanism.errors(asked.space).absolute_error == pytest.approx(
        (rows * asked.distances).sum() / 3
    )
    payload = json.loads(dumps(result))["payload"]
    assert files.package_accepts(payload) and files.alone_accepts(payload)
    [metric] = (at(payload, path)["fields"] for path in places_of(payload) if path[-1:] == ("metric",))
    metric["names"]["$tuple"].reverse()
    metric["points"]["$array"].reverse()
    assert not files.package_accepts(payload) and not files.alone_accepts(payload)


@pytest.mark.parametrize("kind", ["pure", "delta", "metric", "convex", "curved"])
def test_both_checkers_refuse_what_is_changed(kind: str) -> None:
    """Each claim leans on each of its parts: a number moved to the better side breaks it."""
    result = KINDS.get(kind, curved)().solve()
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
    ):
        altered: md.Result = replace(result, **change)  # type: ignore[arg-type]
        payload = json.loads(dumps(altered))["payload"]
        assert not files.package_accepts(payload) and not files.alone_accepts(payload), change


@pytest.mark.parametrize("between", ["all", "adjacent"])
@pytest.mark.parametrize("side", [0, 1])
def test_the_verifier_takes_the_harmful_end(side: int, between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = dumps(problem(between=between).solve())

    def widened(x: Any, bits: int = 320) -> tuple[Fraction, Fraction]:
        low, high = exp_bounds(x, bits)
        return (low, high * 1001 / 1000) if side else (low * 999 / 1000, high)

    monkeypatch.setattr(mechdesign.verifier.table, "exp_bounds", widened)
    failed = refused(text)
    assert len(failed) == 1 and failed[0].startswith(("no table", "multipliers") if side else "private")


@pytest.mark.parametrize("kind", KINDS)
def test_audit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = KINDS[kind]()
    result = made.solve()
    table = result.audit()
    assert list(table.columns) == AUDIT_COLUMNS
    assert set(table["family"]) == {*made.declared.families(), "sums"}
    assert (table["slack"] >= -1e-12).all() and (table["dual"].dropna() >= 0).sum() > 0
    tight = table[(table["dual"] > 1e-6) & (table["family"] == "private")]
    assert (tight["slack"] < 1e-9).all()
    monkeypatch.setattr("mechdesign.model.table_problem.MOST_LISTED", 0)  # then the tightest row of each pair
    short = result.audit().groupby("family")["slack"].min()
    assert short.to_list() == pytest.approx(table.groupby("family")["slack"].min().to_list(), abs=1e-15)


def test_draws() -> None:
    result = problem().solve()
    drawn = result.release(np.array([[0.5, -1.0], [0.0, 1.0]]))
    assert drawn.shape == (2, 2) and set(drawn.ravel()) <= set(Y) and isinstance(result.release(0.5), float)
    assert names().solve().release(["a", "b"]).shape == (2,)
    with pytest.raises(md.DesignError, match="the error is the value of the result"):
        names().solve().errors()
    assert places().solve().release([[0.0, 1.0], [1.0, 1.0]]).shape == (2, 2)
    with pytest.raises(md.DataError, match="must be inputs of the table"):
        places().solve().release([0.0, 1.0, 1.0, 1.0])


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
    result = md.Problem(md.Minimize(P.worst()), asked).solve()
    spent, ledger = consumption(result), md.Ledger(tmp_path / "ledger.jsonl", md.ApproximateDP(1.5, 0.015))
    assert spent.statement == (1.0, 0.01) and spent.epsilon == 2.0 and spent.neighbours == "replace"
    assert result.release(2, ledger=ledger).answer in range(5)
    with pytest.raises(md.DesignError, match="left"):
        result.release(2, ledger=ledger)
    with pytest.raises(md.DesignError, match="one person"):
        consumption(problem().solve())


# -- Sweeps of designs, functions and problems: each point is the design solved there, proved where it is, and infeasible points say why

UNIFORM = stats.uniform(-1, 2)
DESIGNS: list[tuple[Any, str, list[float], int]] = [
    (md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(1.0)), "epsilon", [0.5, 1.0, 2.0], -1),
    (md.VectorQuantizer(20, md.PureDP(4.0)), "bits", [1, 3, 5], -1),
    (md.OptimalNoise(md.ApproximateDP(1.0, 0.1)), "sensitivity", [0.5, 1.0, 2.0], 1),
    (md.CorrelatedGaussian(np.eye(3), md.ApproximateDP(1.0, 1e-6)), "epsilon", [0.5, 1.0], -1),
    (md.MetricChannel(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]), 1.0), "alpha", [0.5, 2.0], -1),
    (md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM), "epsilon", [1.0, 1.5], -1),
    (md.MVU(4, md.PureDP(1.0), (-1, 1)), "epsilon", [0.5, 1.0], -1),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("design", "over", "values", "direction"), DESIGNS)
def test_points_are_the_design_solved_there(
    design: Any, over: str, values: list[float], direction: int, tmp_path: Path
) -> None:
    curve = md.sweep(design, **{over: values})
    table = curve.to_frame()
    assert table[over].tolist() == values and table["certified"].all()
    assert (direction * np.diff(table["value"]) >= -1e-9 * table["value"].max()).all()
    assert not (table["lower_bound"] > table["value"]).any()
    own = hasattr(design, over)
    last = replace(
        design, **({over: values[-1]} if own else {"privacy": replace(design.privacy, **{over: values[-1]})})
    )
    assert last.solve().value == pytest.approx(table["value"].iloc[-1], rel=1e-9)
    again = md.load(curve.save(tmp_path / "curve.json") or tmp_path / "curve.json")
    assert again.table.equals(curve.table) and again.over == over
    assert over in curve.plot().axes[0].get_xlabel() or "ε" in curve.plot().axes[0].get_xlabel()
    curve.report(tmp_path / "curve.html")
    assert "<h1" in (tmp_path / "curve.html").read_text()


def table(cap: Any, epsilon: float = 1.0, **least: Any) -> md.Problem:
    P = md.Table([-1, 0, 1], [-2, 0, 2])
    goal = md.Minimize(P.expected(**least))
    return md.Problem(goal, [P.private(md.PureDP(epsilon)), md.named("cap", P[:, 1] <= cap)])


def test_functions_and_parameters_are_swept_alike(tmp_path: Path) -> None:
    """A point is the problem solved there; one that is infeasible is a row with its reason; files hold all of it."""
    cap = cp.Parameter(name="cap", value=0.3)
    found, again = md.sweep(table, cap=[-0.1, 0.2, 0.4]), md.sweep(table(cap), cap=[-0.1, 0.2, 0.4])
    assert md.search(table(cap), md.Grid(cap=[0.2, 0.4]), bar=False).value == found.table["value"].min()
    assert cap.value == 0.3
    bounded = cp.Parameter(name="cap", nonneg=True)
    with pytest.raises(md.DesignError, match=r"cap = -1\.0"):
        md.sweep(table(bounded), cap=[0.2, -1.0])
    twice = table(cap)
    with pytest.raises(md.DesignError, match="several parameters"):
        md.sweep(twice.subject_to(twice.unknown[0, 0] <= bounded), cap=[0.2])
    assert found.table.drop(columns="seconds").equals(again.table.drop(columns="seconds"))
    assert np.isnan(found.table.loc[0, "value"]) and "no table meets 'cap'" in found.table.loc[0, "note"]
    for value, held in zip(found.table["value"][1:], (0.2, 0.4)):
        assert value == pytest.approx(table(held).solve().value, rel=1e-9)
    for curve in (found, again):
        curve.save(tmp_path / "curve.json")
        assert all(row.holds for row in md.load(tmp_path / "curve.json").agreements())
        assert all(holds for *_, holds in verify((tmp_path / "curve.json").read_text()).rows)
        curve.report(tmp_path / "curve.html")
        assert "expected absolute error" in (tmp_path / "curve.html").read_text()


def test_a_store_is_bound_to_its_problem(tmp_path: Path) -> None:
    """A search continues where it was; another problem of the same name and grid is refused."""
    cap, grid = cp.Parameter(name="cap"), md.Grid(cap=[0.2, 0.4])
    first = md.search(table(cap), grid, store=tmp_path / "store", bar=False)
    assert md.search(table(cap), grid, store=tmp_path / "store", bar=False).table.equals(first.table)
    for other in (table(cap, loss=np.ones((3, 3))), table(cap, 1.0000004)):  # as prints they are the same
        with pytest.raises(md.ResultFormatError, match="another search"):
            md.search(other, grid, store=tmp_path / "store", bar=False)
    budgets = {0.2: 1.0, 0.4: 1.0}

    def again() -> md.Result:
        return md.search(lambda cap: table(cap, budgets[cap]), grid, store=tmp_path / "later", bar=False)

    assert again().value == again().value
    budgets[0.4] = 1.1
    with pytest.raises(md.ResultFormatError, match="another search"):
        again()


# -- Additive noise on a lattice as a declared problem: published and independent optima, privacy by an own check in fractions, tails

HALF = md.ApproximateDP(1.0, 0.2)


def whole(privacy, loss="squared", *rows, reach=14, change=1, tails=None):
    p = md.LatticeNoise(1, reach, sensitivity=change, integer=True, tails=tails)
    own = [row(p) for row in rows]
    return md.Problem(md.Minimize(p.expected(loss)), [p.private(privacy), *own])


def capped(p):
    return md.named("cap", p[p.side] <= 0.4)


def excess(masses: dict[int, Fraction], epsilon: float, change: int) -> Fraction:
    """The largest Σ [p_j − e^ε p_{j+s}]₊, in fractions."""
    low, none = exp_lower(epsilon), Fraction(0)
    shifts = [s for s in range(-change, change + 1) if s]
    return max(sum(max(p - low * masses.get(j + s, none), none) for j, p in masses.items()) for s in shifts)


def cells(*rows):
    p = md.LatticeNoise(0.25, 4)
    return md.Problem(md.Minimize(p.expected("absolute")), [p.private(HALF), *(row(p) for row in rows)])


@settings(max_examples=10, deadline=None)
@given(
    st.floats(0.2, 5.0),
    st.floats(-8, -0.7).map(lambda x: 10**x),
    st.integers(1, 4),
    st.sampled_from(["squared", "absolute"]),
)
def test_the_law_is_private_and_no_program_is_below_the_bound(epsilon, delta, change, loss) -> None:
    reach = math.ceil(change * (1.5 + math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon))
    result = whole(md.ApproximateDP(epsilon, delta), loss, capped, reach=reach, change=change).solve()
    law = result.mechanism
    masses = {law.first + j: w / law.total for j, w in enumerate(law.weights)}
    assert excess(masses, epsilon, change) <= Fraction(delta)
    assert masses[0] <= Fraction(0.4) and result.gap <= 1e-7


def test_tails_cost_what_they_are() -> None:
    """A staircase on the whole numbers, whatever the reach."""
    values = [whole(md.PureDP(1.0), tails=1.0, reach=reach, change=3).solve().value for reach in (3, 4, 9)]
    j = np.arange(400)
    costs = []
    for r in range(1, 4):
        p = np.exp(-1.0 * (j // 3 + (j % 3 >= r)))
        costs.append(2 * float(p @ j**2) / (2 * p.sum() - 1))
    assert values == pytest.approx([min(costs)] * 3, rel=1e-9)


def test_bounds_have_a_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    """With e^ε widened by 1e-3 the bound is at most the optimum at any ε inside."""
    from mechdesign.model import declared

    stated = whole(md.ApproximateDP(1.0, 0.1)).solve().value
    monkeypatch.setattr(declared, "exp_upper", lambda x: Fraction(math.exp(float(x) + 1e-3)))
    wide = whole(md.ApproximateDP(1.0, 0.1)).solve(gap=0.5)
    inside = [whole(md.ApproximateDP(1.0 + k / 4000, 0.1)).solve().value for k in range(4)]
    assert wide.lower_bound <= min(inside) * (1 + 1e-9) and wide.lower_bound < stated


def test_what_is_refused() -> None:
    p = md.LatticeNoise(1, 10, integer=True)
    with pytest.raises(md.DesignError, match=r"tails=1.0"):
        p.private(md.PureDP(1.0))
    with pytest.raises(md.DesignError, match=r"tails=0.5"):
        md.LatticeNoise(1, 10, integer=True, tails=1.0).private(md.PureDP(0.5))
    with pytest.raises(md.DesignError, match="must be PureDP, ApproximateDP"):
        p.private(md.ZeroConcentratedDP(0.5))
    with pytest.raises(md.DesignError, match=r"step = 0\.5"):
        md.LatticeNoise(0.5, 10, integer=True)
    with pytest.raises(md.DesignError, match=r"step = 0\.3: must divide the sensitivity.*: 0.25 or 0.333333"):
        md.LatticeNoise(0.3, 4).private(HALF)
    payload = json.loads(dumps(cells().solve()))["payload"]
    # private at .9 too, but the bound is of more than was asked
    payload["fields"]["design"]["fields"]["sensitivity"] = 0.9
    assert not files.package_accepts(payload) and not files.alone_accepts(payload)
    with pytest.raises(md.DesignError, match="reach = 1"):
        md.LatticeNoise(1, 1, sensitivity=3, integer=True, tails=1.0)
    with pytest.raises(
        md.InfeasibleError, match=r"no noise on this lattice meets 'private' and 'never'.*epsilon = "
    ):
        whole(md.PureDP(1.0), "squared", lambda p: md.named("never", p[6] >= 0.9), tails=1.0, reach=6).solve()


# -- Programs of every unknown but tables, as declared and with a constraint of one's own: committed values, CVXPY's own optima, both checkers

TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)
CHANGES = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
Row = Callable[[Any], Any]


def selection(*rows: Row) -> md.Problem:
    problem = md.OPTM([-3, -0.5, 0.5, 3], PURE, stats.uniform(-1, 2)).problem()
    return problem.subject_to(*(row(problem.unknown) for row in rows)) if rows else problem


def scales(*rows: Row) -> md.Problem:
    s = md.Scales([1.0, 1.0, 1.0, 0.5], "laplace")
    return md.Problem(
        md.Minimize(s.expected("absolute", [1, 2, 0.5, 1])), [s.private(PURE), *(row(s) for row in rows)]
    )


def covariance(*rows: Row) -> md.Problem:
    S = md.Covariance(CHANGES)
    return md.Problem(
        md.Minimize(S.total()), [S.private(md.ZeroConcentratedDP(0.5)), *(row(S) for row in rows)]
    )


def lattice(*rows: Row) -> md.Problem:
    p = md.LatticeNoise(1, 14, integer=True)
    privacy = md.ApproximateDP(1.0, 1e-6)
    return md.Problem(md.Minimize(p.expected("squared")), [p.private(privacy), *(row(p) for row in rows)])


def cap(unknown: Any) -> Any:
    return md.named("cap", unknown[:, 1] <= 0.2)


def same(s: Any) -> Any:
    return md.named("same", s[0] == s[1])


def variance(S: Any) -> Any:
    return md.named("variance", S[0, 0] <= 1.45)


def rare(p: Any) -> Any:
    return md.named("rarely right", p[14] <= 0.4)


PROGRAMS: dict[str, tuple[Callable[[], md.Problem], float | None]] = {
    "selection": (lambda: selection(), 2.263621912687842),
    "selection, own row": (lambda: selection(cap), 2.3982522308),
    "selection, entropy": (lambda: selection(lambda Q: cp.sum(cp.entr(Q[2])) >= 0.988), 2.2684975907),
    "selection, divergence": (lambda: selection(lambda Q: cp.sum(cp.kl_div(Q[2, :3], [0.6, 0.3, 0.1])) <= 0.02), 2.313459975),
    "scales": (lambda: scales(), 14.65685425),
    "scales, own row": (lambda: scales(same), 14.92820323),
    "covariance": (lambda: covariance(), 4.5),
    "covariance, own row": (lambda: covariance(variance), 4.51111111111),
    "lattice noise": (lambda: lattice(), 1.84109985387),
    "lattice noise, own row": (lambda: lattice(rare), 2.0537463792),
    "pure noise": (lambda: whole(PURE, tails=1.0, reach=6, change=2), None),
    "pure noise, own row": (lambda: whole(PURE, "squared", capped, tails=1.0, reach=6, change=2), None),
    "slower tails": (lambda: whole(PURE, tails=0.5, reach=10), None),
    "two points": (lambda: whole(md.TradeOff([(0, 0.3), (1, 0)]), "absolute", tails=1.0, reach=9, change=3), None),
    "cells": (lambda: cells(), None),
    "cells, own rows": (lambda: cells(lambda p: md.named("flat", cp.abs(p[15] - p[17]) <= 0.01)), None),
}  # fmt: skip


def delivered(problem: md.Problem, result: md.Result) -> float:
    """What the mechanism costs in the declared objective: of a selection Lemma 1's bound, which is not its exact loss."""
    if not isinstance(problem.unknown, md.Selection):
        return result.value
    law = result.mechanism.law
    held = np.zeros(problem.unknown.shape)
    for q, row in zip(held, law.left):
        q[: len(row)] = [w / sum(row) for w in row]
    problem.unknown.save_value(held)
    return float(problem.objective.expr.value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_optimum(name: str) -> None:
    make, value = PROGRAMS[name]
    problem = make()
    result = problem.solve()
    found = delivered(problem, result)
    # in a unit in which the numbers are next to 1: Clarabel's tolerances are absolute as well
    program = result.problem().to_cvxpy()
    alone = cp.Problem(cp.Minimize(program.objective.expr / found), program.constraints)
    alone.solve(solver=cp.CLARABEL, **TIGHT)
    assert alone.value == pytest.approx(1.0, abs=1e-7)
    assert value is None or found == pytest.approx(value, rel=1e-8)
    assert result.certificate is not None and result.certificate.verify()
    assert all(holds for *_, holds in verify(dumps(result)).rows)
    if not isinstance(problem.unknown, md.Selection):  # whose bound is of every unbiased mechanism
        assert result.gap is not None and result.gap <= 1e-7
