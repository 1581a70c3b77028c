"""Every design through the same list: what the protocol promises holds for all of them."""

import copy
import dataclasses
import inspect
import itertools
import json
import math
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cheap
import cvxpy as cp
import jsonschema
import numpy as np
import pandas as pd
import pytest
from cheap import PURE, UNIFORM

import mechdesign as md
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import KINDS, dumps, result_schema
from mechdesign.problem.spine import Design, ModelledDesign
from mechdesign.typing import Status
from tests.timing.releases import RELEASES

NAMES = list(cheap.DESIGNS)
HOW = {"proved", "recomputed", "claimed"}
CHECKS = ["claim", "how", "margin", "holds"]

# Designs that take much longer than a second when nothing stops them.
LONG: dict[str, Callable[[], Any]] = {
    "optm": lambda: md.OPTM(np.linspace(-3, 3, 24).tolist(), PURE, UNIFORM),
    "rqm": lambda: md.RQM(
        16, PURE, UNIFORM, grid=md.Grid(delta=np.linspace(1, 9, 300), q=np.linspace(0.05, 0.9, 300))
    ),
    "mvu": lambda: md.MVU(m=12, privacy=PURE, input_range=(-1, 1)),
    "optm-search": lambda: md.OPTMSearch(PURE, UNIFORM),
    "optimal-quantizer": lambda: md.OptimalQuantizer(
        np.linspace(-4, 4, 1025), PURE, UNIFORM, objective="worst"
    ),
    "bin-search": lambda: md.OptimalQuantizer(md.BinSearch(16, 6.0), PURE, UNIFORM),
    "metric-quantizer": lambda: md.MetricQuantizer(np.linspace(-4, 4, 64), md.MetricDP(2.0), UNIFORM),
    "biased-selection": lambda: md.BiasedSelection(
        8,
        PURE,
        UNIFORM,
        max_bias=math.inf,
        grid=md.Grid(
            delta=np.linspace(0.5, 3, 60), q=np.linspace(0.1, 0.9, 60), beta=np.linspace(0.1, 0.9, 60)
        ),
    ),
    "correlated-gaussian": lambda: md.CorrelatedGaussian(
        np.random.default_rng(0).normal(size=(600, 40)), md.ApproximateDP(0.5, 1e-6)
    ),
    "metric-channel": lambda: md.MetricChannel(md.MetricSpace.grid(11, 11), alpha=0.5),
    "bounded-count": lambda: md.BoundedCount(12, md.ApproximateDP(1.0, 0.01), "squared"),
}


# Solvers of problems that are no linear programs.
GENERIC: dict[str, str] = dict.fromkeys(
    (
        "covariance-problem", "correlated-gaussian", "counts-gaussian", "matrix-mechanism", "matrix-epochs",
        "noise-allocation", "scales-problem",
    ),
    "clarabel",
)  # fmt: skip
UNDECLARED = {"buffered-toeplitz", "family-allocation", "mixed-allocation", "optimal-noise-many", "private-choice"}  # fmt: skip
"""Searches, of which there is no program."""


def design(name: str) -> Any:
    return cheap.DESIGNS[name][0]()


def solve(name: str, *words: Any, **changes: Any) -> md.Result:
    return design(name).solve(*words, **{**cheap.DESIGNS[name][1], **changes})


@pytest.mark.parametrize("name", NAMES)
class TestDesign:
    def test_is_a_frozen_design(self, name: str) -> None:
        made = design(name)
        assert isinstance(made, Design) and dataclasses.is_dataclass(made)
        field = dataclasses.fields(made)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field, 1)
        assert type(made).__name__ in repr(made)

    @pytest.mark.slow
    def test_solver_is_the_first_argument(self, name: str) -> None:
        if not isinstance(design(name), ModelledDesign):
            with pytest.raises(md.DesignError, match="solver"):
                solve(name, solver="highs")
            return
        assert isinstance(solve(name, None), md.Result)
        with pytest.raises(md.DesignError, match="solver"):
            solve(name, "nonesuch")
        with pytest.raises(md.DesignError, match="solver"):
            solve(name, 3)
        try:
            assert isinstance(solve(name, "highs"), md.Result)
        except md.DesignError as error:
            assert "solver" in str(error)  # not one for this kind of model

    @pytest.mark.slow
    def test_unknown_option_is_refused_by_name(self, name: str) -> None:
        with pytest.raises(md.DesignError, match="nonsense"):
            solve(name, nonsense=1)

    @pytest.mark.slow
    @pytest.mark.parametrize("word", ["gap", "time_limit"])
    def test_wrong_numbers(self, name: str, word: str) -> None:
        for bad in (0, -1, "a", math.nan, True, np.True_, b"1", [1], *([2] if word == "gap" else [])):
            with pytest.raises(md.DesignError, match=word):
                solve(name, **{word: bad})

    @pytest.mark.slow
    def test_generous_limit_changes_nothing(self, name: str) -> None:
        result, free = solve(name, time_limit=300), cheap.solved(name)
        assert result.status is free.status
        assert result.value == pytest.approx(free.value, rel=1e-9)

    def test_without_certificate(self, name: str) -> None:
        result = solve(name, certify=False)
        assert isinstance(result.status, Status)
        assert result.status is Status.UNCERTIFIED or result.certificate is not None
        assert isinstance(str(result), str)

    def test_wrong_fields(self, name: str) -> None:
        """What no field takes is refused by its name; all else is taken, or refused by a line."""
        made = design(name)
        for field in dataclasses.fields(made):
            if field.init and field.name != "design":  # what a declared problem was made from
                for bad in (object(), "nonsense", math.nan, -math.inf, -1.0, 1j):
                    with pytest.raises(md.DesignError, match=f"distances|{field.name}") as refusal:
                        dataclasses.replace(made, **{field.name: bad})
                    assert "\n" not in str(refusal.value)
                for odd in (0, True, None, [], {"a": 1}, [[1], [2, 3]], 10**400):
                    try:
                        dataclasses.replace(made, **{field.name: odd})
                    except md.MechdesignError as error:
                        assert "\n" not in str(error)


DECLARED = [
    name
    for name in NAMES
    if name not in UNDECLARED
    and isinstance(made := design(name), ModelledDesign)
    and type(made).problem is not ModelledDesign.problem
]
"""Designs that are declared as problems."""


@pytest.mark.parametrize("name", DECLARED)
def test_solved_in_every_way(name: str) -> None:
    """By default, by a generic registered solver and as its declared problem, a design has one value, to the gaps."""
    problem = design(name).problem()
    assert isinstance(problem, md.Problem) and problem.requirements and str(problem)
    labels = [one.label for one in problem.constraints]
    assert all(labels) and len(set(labels)) == len(labels)
    default = solve(name)
    for other in (solve(name, GENERIC.get(name, "highs")), problem.solve()):
        room = 1e-7 + (default.gap or 0.0) + (other.gap or 0.0)
        assert other.certificate is not None and other.certificate.verify()
        assert other.value == pytest.approx(default.value, rel=room)


REDUNDANT: dict[str, list[Callable[[Any], Any]]] = {
    "Scales": [lambda x: x >= 0, lambda x: cp.norm(x) <= 1e60],
    "Covariance": [lambda x: x[0, 0] >= 0, lambda x: cp.trace(x) >= 0],
    "LatticeNoise": [lambda x: x[0] <= 1, lambda x: cp.norm(x) <= 2],
    "Table": [lambda x: x[0, 0] <= 1, lambda x: cp.norm(x[0]) <= 2, lambda x: cp.sum(x[0]) == 1],
    "Selection": [lambda x: x[0, 0] <= 1, lambda x: cp.norm(x[0]) <= 2],
}
"""Rows that hold anyway, of each unknown."""
ELSEWHERE = {"mvu", "optimal-quantizer", "metric-quantizer", "optimal-noise"}
"""Designs whose result is of another loss, or of laws and inputs beyond the declared program."""

SEARCHES = {"optm-search", "bin-search", "alphabet"}
"""Designs whose program is that of the bins found."""


BUDGETS = [(1e-6, 0.1), (0.05, 1e-3), (1.0, 1e-6), (9.0, 0.01), (40.0, 1e-6), (150.0, 1e-5), (690.0, 0.05)]


def budgeted(made: Any, epsilon: float, delta: float) -> Any:
    """The design at this budget, of the same kind, or at its own if that is none of its fields."""
    kinds = {md.PureDP: md.PureDP(epsilon), md.ApproximateDP: md.ApproximateDP(epsilon, delta)}
    changes: dict[str, Any] = {"alpha": epsilon, "privacy": kinds.get(type(getattr(made, "privacy", None)))}
    known = {field.name for field in dataclasses.fields(made)}
    return dataclasses.replace(made, **{k: v for k, v in changes.items() if k in known and v is not None})


@pytest.mark.parametrize("name", [name for name in DECLARED if name not in SEARCHES])
def test_a_redundant_row_changes_nothing(name: str) -> None:
    """A row that holds anyway leaves a design's value and gap at budgets of practice, and at any budget its privacy."""
    made = design(name)
    for budget, row in zip(BUDGETS, itertools.cycle(REDUNDANT[type(made.problem().unknown).__name__])):
        try:
            problem = budgeted(made, *budget).problem()
        except (md.DesignError, md.InfeasibleError):  # what the design takes, or finds in its search
            continue
        alone = dataclasses.replace(problem, design=None) if name in ELSEWHERE else problem
        asked = problem.subject_to(md.named("redundant", row(problem.unknown)))
        try:
            found = alone.solve()
        except md.InfeasibleError:
            with pytest.raises(md.InfeasibleError):
                asked.solve()
            continue
        other = asked.solve()
        room = 1e-7 + (found.gap or 0.0)
        assert other.certificate is not None and other.certificate.verify()
        if not 0.01 < budget[0] < 20:
            continue
        assert other.value == pytest.approx(found.value, rel=room, abs=0)
        assert found.gap is None or (other.gap is not None and other.gap <= max(1e-6, 1.1 * found.gap))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LONG))
def test_limit_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that moves by a fiftieth of the limit at every look: fallbacks and preparation look too, and end."""
    looks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(looks) / 50)
    try:
        result = LONG[name]().solve(time_limit=1.0)
    except md.SolverError as error:
        assert "limit" in f"{error} {error.status}"
    else:
        over = time.monotonic() > 1.0  # otherwise it was done in fewer looks
        assert (result.status is Status.LIMIT) == over and math.isfinite(result.value)


@pytest.mark.parametrize("name", NAMES)
class TestResult:
    def test_parts(self, name: str) -> None:
        result = cheap.solved(name)
        assert isinstance(result, md.Result) and type(result.status) is Status
        assert isinstance(result.solver_report, md.evidence.SolveReport)
        assert math.isfinite(result.value)
        assert result.lower_bound is None or result.lower_bound <= result.value * (1 + 1e-12)
        assert result.duals is None or isinstance(result.duals, pd.DataFrame)
        if result.status in (Status.OPTIMAL, Status.BEST):
            assert result.lower_bound is not None and result.certificate is not None
        assert (result.bound_class is None) == (result.lower_bound is None)
        assert result.mechanism_class is None or result.bound_class is result.mechanism_class.scope

    def test_certificate(self, name: str) -> None:
        certificate = cheap.solved(name).certificate
        assert isinstance(certificate, md.Certificate)
        checks = certificate.checks()
        assert list(checks.columns)[:4] == CHECKS and len(checks) and set(checks["how"]) <= HOW
        assert certificate.verify() and not (checks["margin"][checks["holds"]] < 0).any()

    def test_audit(self, name: str) -> None:
        table = cheap.solved(name).audit()
        assert list(table.columns) == AUDIT_COLUMNS and len(table)
        assert not table["slack"].isna().any()

    def test_shows_itself(self, name: str) -> None:
        result = cheap.solved(name)
        assert type(result.design).__name__ in str(result) and len(str(result).splitlines()) <= 16
        assert "<table" in result._repr_html_()
        assert len(result.to_frame()) and "unit of privacy" in result.question()
        assert result.plot().axes
        others = result.alternatives()
        assert others.empty or others["relative"].iloc[0] == pytest.approx(1.0)

    @pytest.mark.slow
    def test_save_and_load(self, name: str, tmp_path: Path) -> None:
        result = cheap.solved(name)
        first, second = tmp_path / "1.json", tmp_path / "2.json"
        result.save(first)
        loaded = md.load(first)
        loaded.save(second)
        assert first.read_bytes() == second.read_bytes()
        jsonschema.validate(json.loads(first.read_text()), result_schema())
        assert str(loaded) == str(result) and loaded.certificate.verify()
        assert dumps(pickle.loads(pickle.dumps(result))) == dumps(copy.copy(loaded))
        pd.testing.assert_frame_equal(loaded.audit(), result.audit(), check_dtype=False)


TINY = [
    *map(md.PureDP, (1e-9, 1e-16)),
    *map(md.ApproximateDP, (1e-12, 1e-16), (1e-9, 1e-16)),
    *map(md.GaussianDP, (2e-8, 1e-15)),
]


@pytest.mark.parametrize("name", [n for n in NAMES if design(n).asks == "numbers" or n == "plan"])
def test_what_is_not_released_is_said(name: str) -> None:
    """At budgets so small that no lattice is fine enough, a result's notes say that it cannot be released."""
    for tiny in TINY:
        try:
            result = dataclasses.replace(design(name), privacy=tiny).solve(
                time_limit=2, **cheap.QUICK.get(name, {})
            )
        except (md.MechdesignError, TypeError):  # refused, or stated with its own requirement
            continue
        zeros = {"visits": [0] * 3, "people": 0, "age": [0, 0], "spent": 0, "totals": [0] * 3}
        said = [note for note in result.notes if note.startswith("cannot be released")]
        try:
            result.release(zeros if name == "plan" else np.zeros(result.design.answer_size))
        except md.DesignError as refusal:
            assert said == [f"cannot be released: {refusal}"]
        else:
            assert not said


@pytest.mark.parametrize("name", RELEASES)
def test_mechanisms_are_copied_after_use(name: str) -> None:
    release = RELEASES[name]
    good = next(iter(release.pairs(release.mechanism).values()))[0]
    release.method(release.mechanism)(good)
    again = pickle.loads(pickle.dumps(release.mechanism))
    release.method(again)(good)
    if release.kind in KINDS:
        assert dumps(again) == dumps(release.mechanism)


def test_every_design_is_in_the_list() -> None:
    public = {getattr(md, name) for name in md.__all__} | {getattr(md.noise, n) for n in md.noise.__all__}
    designs = {
        c for c in public if inspect.isclass(c) and issubclass(c, Design) and c not in (Design, md.Problem)
    }
    assert designs <= {type(design(name)) for name in NAMES}
