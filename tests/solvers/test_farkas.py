"""Points of a sweep that are left out as infeasible really are, and leaving them out changes no answer."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import mechdesign as md
from mechdesign.solvers import CompiledLP, HighsSession, Model
from mechdesign.solvers.farkas import FarkasRays

UNIFORM = stats.uniform(-1, 2)


def program(size: int, rows: int) -> tuple[Model, cp.Parameter, cp.Parameter]:
    """Shares that sum to 1, under rows whose numbers and limits vary."""
    matrix, limit = cp.Parameter((rows, size), name="matrix"), cp.Parameter(rows, name="limit")
    q = cp.Variable(size, name="q", nonneg=True)
    families = {"total": cp.sum(q) == 1, "rows": matrix @ q <= limit}
    problem = cp.Problem(cp.Minimize(np.arange(size) @ q), list(families.values()))
    return Model(problem, {"q": q}, families, {"matrix": matrix, "limit": limit}), matrix, limit


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 5]),
    st.sampled_from([1, 4]),
    st.sampled_from([1.0, 1e-6, 1e6]),
)
def test_what_is_left_out_is_infeasible(seed: int, size: int, rows: int, unit: float) -> None:
    """Against a fresh solve of each point by SciPy, with and without the rays."""
    rng = np.random.default_rng(seed)
    model, *_ = program(size, rows)
    compiled = CompiledLP(model)
    start, drift = rng.normal(size=(2, rows, size))
    limit, fall = rng.normal(size=rows), rng.normal(size=rows)
    times = np.linspace(-1, 1, 40)
    matrices = unit * (start + times[:, None, None] * drift)
    limits = unit * (limit + times[:, None] * fall)
    points = np.stack([compiled.point({"matrix": a, "limit": b}) for a, b in zip(matrices, limits)], axis=1)
    matrix, rhs, cost = (np.ascontiguousarray(part.T) for part in compiled.coefficients(points))
    rays = FarkasRays(compiled, np.ones(compiled.width))
    answers = []
    for known in (rays, rays, None):
        session = HighsSession(compiled, points[:, 0])
        answers.append(session.sweep(matrix, rhs, cost, known)[0])
    out = rays.excluded(matrix, rhs)
    for a, b, left_out, *values in zip(matrices, limits, out, *answers):
        found = optimize.linprog(
            np.arange(size), A_ub=a / unit, b_ub=b / unit, A_eq=np.ones((1, size)), b_eq=[1.0]
        )
        if left_out:
            assert found.status == 2
        np.testing.assert_allclose(values, values[-1], rtol=1e-9, atol=1e-9)


def test_a_point_at_the_border_is_not_left_out() -> None:
    """By less than the margin, or by a bound that is not known, nothing is proved."""
    model, *_ = program(2, 1)
    compiled = CompiledLP(model)
    limits = [-0.5, -1e-3, -1e-9, 0.0, 3.0]  # of q_1 ≥ 0: the first two are infeasible for certain
    points = np.stack([compiled.point({"matrix": [[1.0, 0.0]], "limit": [b]}) for b in limits], axis=1)
    matrix, rhs, _ = (np.ascontiguousarray(part.T) for part in compiled.coefficients(points))
    ray = np.array([0.0, -1.0])
    for reach, wanted in ((1.0, [True, True, False, False, False]), (np.inf, [False] * 5)):
        rays = FarkasRays(compiled, np.full(2, reach))
        assert rays.learn(ray, matrix, rhs).tolist() == wanted == rays.excluded(matrix, rhs).tolist()
        for useless in (-ray, 0 * ray, np.full(2, np.nan), np.full(2, np.inf)):
            assert not rays.learn(useless, matrix, rhs).any()


@pytest.mark.parametrize("constraints", ["theorem5", "across-outputs"])
def test_the_search_is_the_one_without_leaving_out(constraints: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bins = md.Grid(delta=[1.0, 1.5, 2.0], inner=[0.1, 0.4, 0.5, 0.9, 1.0])
    search = md.OPTMSearch(md.PureDP(1.2), UNIFORM, bins=bins, constraints=constraints)
    runs = []
    run, sweep = HighsSession.run, HighsSession.sweep
    monkeypatch.setattr(HighsSession, "run", lambda self: runs.append(1) or run(self))
    fast, few = search.solve(), len(runs)
    monkeypatch.setattr(HighsSession, "sweep", lambda self, *point: sweep(self, *point[:3]))
    slow = search.solve()
    assert few < len(runs) - few and 0 < fast.table["feasible"].sum() < fast.table["programs"].sum()
    value = fast.table.pop("value"), slow.table.pop("value")
    assert fast.table.equals(slow.table) and fast.mechanism.bins.tolist() == slow.mechanism.bins.tolist()
    np.testing.assert_allclose(*value, rtol=1e-12)
