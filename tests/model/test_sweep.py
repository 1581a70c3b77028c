"""Sweeps of designs, functions and problems: each point is the design solved there, proved where it is, and infeasible points say why."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.solvers.deadline import Deadline
from mechdesign.verifier.verify import verify

UNIFORM = stats.uniform(-1, 2)
DESIGNS: list[tuple[Any, str, list[float], int]] = [
    (md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(1.0)), "epsilon", [0.5, 1.0, 2.0], -1),
    (md.VectorQuantizer(20, md.PureDP(4.0)), "bits", [1, 3, 5], -1),
    (md.OptimalNoise(md.ApproximateDP(1.0, 0.1)), "sensitivity", [0.5, 1.0, 2.0], 1),
    (md.CorrelatedGaussian(np.eye(3), md.ApproximateDP(1.0, 1e-6)), "epsilon", [0.5, 1.0], -1),
    (
        md.MetricChannel(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]), 1.0),
        "alpha",
        [0.5, 2.0],
        -1,
    ),
    (md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM), "epsilon", [1.0, 1.5], -1),
    (md.MVU(4, md.PureDP(1.0), (-1, 1)), "epsilon", [0.5, 1.0], -1),
]


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


@pytest.mark.parametrize(("design", "over"), [
    (md.OptimalQuantizer(md.BinSearch(8, 8.0), md.PureDP(1.0), UNIFORM), "epsilon"),
    (md.OPTM(np.linspace(-3, 3, 12).tolist(), md.PureDP(1.0), UNIFORM), "epsilon"),
    (md.Calibration("gennorm", md.ApproximateDP(1.0, 1e-6), 1.0, dimension=3), "epsilon"),
])  # fmt: skip
def test_points_that_time_is_too_short_for_say_so(
    design: Any, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deadline, "left", property(lambda self: 0.0 if self.finite else math.inf))
    curve = md.sweep(design, **{over: [1.0, 2.0]}, time_limit=1.0)
    assert len(curve.table) == 2 and all(row.holds for row in curve.agreements())
    for result, (_, row) in zip(curve.results, curve.table.iterrows()):
        late = "no answer within its share of the time limit" if result is None else "not verified in time"
        assert late in row["note"] and not row["certified"]
    with pytest.raises(md.DesignError, match="time_limit"):
        md.sweep(design, **{over: [1.0]}, time_limit=-1)


def test_infeasible_points_say_why() -> None:
    """Outputs too near the range for a small ε."""
    table = md.sweep(md.OPTM([-1.6, -0.5, 0.5, 1.6], md.PureDP(1.0), UNIFORM), epsilon=[0.2, 3.0]).table
    assert np.isnan(table["value"].iloc[0]) and "epsilon" in table["note"].iloc[0]
    assert table["value"].iloc[1] > 0


def table(cap: Any) -> md.Problem:
    P = md.Table([-1, 0, 1], [-2, 0, 2])
    return md.Problem(md.Minimize(P.expected()), [P.private(md.PureDP(1.0)), md.named("cap", P[:, 1] <= cap)])


def test_functions_and_parameters_are_swept_alike(tmp_path: Path) -> None:
    """A point is the problem solved there; one that is infeasible is a row with its reason; files hold all of it."""
    cap = cp.Parameter(name="cap")
    found, again = md.sweep(table, cap=[-0.1, 0.2, 0.4]), md.sweep(table(cap), cap=[-0.1, 0.2, 0.4])
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
    other = table(cap)
    other = other.subject_to(md.named("kept", other.unknown[0, 0] >= 0.1))
    with pytest.raises(md.ResultFormatError, match="another search"):
        md.search(other, grid, store=tmp_path / "store", bar=False)


def test_threads_share_no_programs() -> None:
    bins = md.Grid(delta=[1.8, 1.9, 2.0], inner=[0.4, 0.5])
    design = md.OPTMSearch(md.PureDP(1.0), UNIFORM, bins=bins)
    alone, shared = design.solve(bar=False), design.solve(bar=False, jobs=2, backend="threading")
    assert shared.table.equals(alone.table)
    with pytest.raises(md.DesignError, match="backend"):
        md.search(table(cp.Parameter(name="cap")), md.Grid(cap=[0.2]), backend="threading")


@pytest.mark.parametrize(
    ("build", "axis", "message"),
    [
        (table, {}, "axis"),
        (table, {"cap": [0.1], "more": [1.0]}, "axis"),
        (lambda cap: 3, {"cap": [0.1]}, "build"),
        (3, {"cap": [0.1]}, "build"),
        (table(0.2), {"cap": [0.1]}, "axis"),
    ],
)
def test_wrong_builds(build: Any, axis: Any, message: str) -> None:
    with pytest.raises(md.DesignError, match=message):
        md.sweep(build, **axis)


@pytest.mark.parametrize(
    ("over", "values", "message"),
    [
        ("bits", [1], "must be one of"),
        ("epsilon", [np.nan], "epsilon"),
        ("epsilon", [-1.0], "epsilon"),
    ],
)
def test_wrong_axes(over: str, values: Any, message: str) -> None:
    with pytest.raises(md.DesignError, match=message):
        md.sweep(DESIGNS[0][0], **{over: values})
