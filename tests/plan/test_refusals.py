"""What no plan can be made of, and what none releases, is refused in one sentence that names it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mechdesign as md
from mechdesign.plan import Ledger

PURE, RHO, APPROXIMATE = md.PureDP(1.0), md.ZeroConcentratedDP(1.0), md.ApproximateDP(9.0, 1e-6)


def plan(privacy: Any = PURE, tasks: Any = None, **options: Any) -> md.Plan:
    return md.Plan(tasks or {"a": md.Count()}, privacy, **options)


def unmet(privacy: Any) -> md.Result:
    return plan(privacy, {"a": md.Count(), "s": md.Sum(2.0)}, targets={"a": 1e-30, "s": 1e-30}).solve()


def units(privacy: Any, clip: float) -> md.Plan:
    return plan(privacy, {"a": md.Sum(clip), "b": md.Sum(1.0)})


def released(answers: Any) -> Any:
    return plan(PURE, {"n": md.Count(), "h": md.Histogram(2)}).solve().mechanism.release(answers)


def choosing(privacy: Any = PURE, **changed: Any) -> md.Plan:
    tasks = {
        "visits": md.Histogram(5),
        "spent": md.Sum(5.0),
        "winner": md.PrivateChoice(["a", "b", "c"], md.PureDP(0.25)),
        "median": md.PrivateQuantile(0.5, (0, 100, 1), md.PureDP(0.125)),
    }
    return md.Plan({**tasks, **changed.pop("tasks", {})}, privacy, **changed)


def winner(*given: Any, **options: Any) -> dict[str, Any]:
    return {"winner": md.PrivateChoice(2, *given, **options)}


def relative(given: Any) -> md.Plan:
    tasks = {"visits": md.Histogram(50), "spent": md.Sum(5.0)}
    return md.Plan(tasks, PURE, relative=given, targets={"spent": 40.0})


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: plan(weights={"a": 1e301}), "weights"),
    (lambda: plan(weights={}), "weights = {}: must have one name at least"),
    (lambda: plan(weights={1: 2.0}), "must have names that are strings"),
    (lambda: plan(tasks=[("a", md.Count()), ("a", md.Count())]), "twice"),
    (lambda: plan(md.TradeOff([(1.0, 0.0)])), "privacy"),
    (lambda: plan(md.ZeroConcentratedDP(0.1, 0.1)), "xi"),
    (lambda: plan(targets={"a": 1.0}, weights={"a": 1.0}), "targets"),
    (lambda: plan(md.GaussianDP(0.5), targets={"a": 1.0}), "targets"),
    (lambda: plan(disjoint=[["a"]], neighbours="replace"), "add-remove"),
    *((lambda p=p, kept=kept: plan(p, families=(kept,)), "families") for p, kept in ((PURE, "gaussian"), (RHO, "laplace"))),
    (lambda: plan(tasks={"a": md.NumericQuery(1, 1.0, rounds=2)}), "once"),
    (lambda: plan(tasks={"a": md.NumericQuery(1, 1.0)}, neighbours="replace"), r"tasks\['a'\].*replace"),
    *((lambda privacy=privacy: unmet(privacy), "target") for privacy in (md.PureDP(500.0), APPROXIMATE, RHO)),
    *((lambda clip=clip: units(APPROXIMATE, clip), "choose other units") for clip in (1e-100, 1e100)),
    (lambda: md.Mean(3, 2, 10), "upper"),
    (lambda: md.Sum(1.5, whole=True), "clip"),
    (lambda: md.Sum(1.0, values=[-1.0, 2.0], n=3), "values"),
    (lambda: md.Histogram(3, 4), "contribution"),
    (lambda: released({"n": 7}), "tasks"),
    (lambda: released({"n": 7.5, "h": [1, 2]}), "n: must be whole"),
    (lambda: released({"n": math.nan, "h": [1, 2]}), "n: must be finite"),
    (lambda: released({"n": 7, "h": [1, 2, 3]}), "h: must be 2 numbers"),
    (lambda: choosing(md.PureDP(0.375)), "leave something"),
    (lambda: choosing(md.GaussianDP(1.0)), "epsilon or rho"),
    (lambda: choosing(targets={"visits": 9.0, "spent": 99.0}), "targets"),
    (lambda: choosing(neighbours="replace"), "neighbours"),
    (lambda: choosing(disjoint=[["winner"]]), "disjoint"),
    (lambda: choosing(tasks=winner(md.ZeroConcentratedDP(0.01))), "PureDP"),
    (lambda: choosing(tasks=winner(md.PureDP(0.1), largest=2)), "largest"),
    (lambda: choosing(chosen=winner(md.PureDP(0.1))), "names of their own"),
    (lambda: plan(tasks=winner(md.PureDP(0.1))), "with noise"),
    *((lambda share=share: plan(reserve=share), "reserve") for share in (1.0, -0.1, math.nan)),
    (lambda: plan(md.MembershipAdvantage(0.1), reserve=0.1), "reserve"),
    (lambda: plan(md.ZeroConcentratedDP(1.0, xi=0.1), reserve=0.5), "xi"),
    *(
        (lambda budget=budget: plan(budget=budget), "budget")
        for budget in (5, md.PureDP(0.5), RHO, md.MembershipAdvantage(0.1))
    ),
    *(
        (lambda given=given: relative(given), "relative|targets")
        for given in ({"visits": 0.05}, {"visits": (0, 1)}, {"visits": (0.1, math.nan)}, {"other": (0.1, 1)}, 5)
    ),
    (lambda: Ledger("nowhere.jsonl"), r"there is no ledger .*nowhere.jsonl: give its budget to open one"),
    (lambda: Ledger("nowhere.jsonl", md.ZeroConcentratedDP(1.0, 0.1)), "must have xi = 0"),
    (lambda: Ledger("no/where.jsonl", PURE), "there is no folder"),
    (lambda: plan().solve().release({"a": 1}, ledger="year.jsonl"), "must be a Ledger"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "words"), REFUSED, ids=range(len(REFUSED)))
def test_refused(ask: Callable[[], Any], words: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with np.errstate(all="ignore"), pytest.raises((md.DesignError, md.InfeasibleError), match=words):
        ask()
    assert not [*tmp_path.iterdir()]
