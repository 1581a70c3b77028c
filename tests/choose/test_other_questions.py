"""Results for another question are marked in a comparison, and no bound is above the error of a row that it speaks of."""

import functools
import json
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import cheap
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.choose.comparing import _parsed
from mechdesign.choose.comparison import OTHER
from mechdesign.choose.questions import check_same_privacy
from mechdesign.evidence.proofs import CLAIMED, Scope
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.verifier.verify import verify as alone

PURE, APPROXIMATE = md.PureDP(1.0), md.ApproximateDP(1.0, 1e-3)
SHARP = {"gaussian", "laplace", "logistic"}
"""Families of symmetric log-concave laws."""


FEW = md.Sensitivity(linf=1, l0=1)
REPLACED = md.Sensitivity(linf=1, neighbours="replace")
SUM = md.Sensitivity(l1=1)


@functools.cache
def noises(privacy: Any) -> list[md.Result]:
    """Noise in closed form for many questions at one privacy, with bounds of every class that a comparison states."""
    found = []
    for loss in ("squared", "absolute"):
        if privacy is PURE:
            for size, change in product((1, 2), (0.5, 1.0, 2.0, REPLACED, SUM)):
                found += [
                    md.Calibration(f, privacy, change, size, loss).solve() for f in ("laplace", "staircase")
                ]
            found += [md.OptimalNoise(privacy, change, loss).solve() for change in (0.5, 2.0, REPLACED)]
            found += [
                md.noise.KNorm(2, privacy, change, loss=loss).solve() for change in (1.0, REPLACED, SUM)
            ]
        else:
            for size, change in product((1, 2), (0.5, 1.0, REPLACED, FEW, SUM)):
                found.append(md.Calibration("gaussian", privacy, change, size, loss).solve())
            found += [
                md.Calibration("laplace", privacy, change, 1, loss).solve() for change in (0.5, 1.0, REPLACED)
            ]
    return [*found, md.Calibration("laplace", privacy, 1.0, rounds=2).solve()]


def drawn(rng: np.random.Generator) -> tuple[md.NumericQuery, Any, list[str]]:
    privacy, size = (PURE, APPROXIMATE)[int(rng.random() < 0.2)], int(rng.integers(1, 3))
    listed = [[1.0, 0.0], [0.0, 0.5]] if size == 2 else [[0.5]]
    few, less = md.Sensitivity(linf=0.5, l0=1), md.Sensitivity(l1=0.5, signed=False)
    change = [0.25, 0.5, 1.0, 2.0, few, less, REPLACED, listed][int(rng.integers(8))]
    query = md.NumericQuery(
        size, change, str(rng.choice(["squared", "absolute"])), int(rng.choice([1, 1, 2]))
    )
    return query, privacy, [str(rng.choice(["laplace", "staircase"]) if privacy is PURE else "gaussian")]


def above(found: md.Comparison) -> list[str]:
    """Rows with less error than a bound of a class that they are of."""
    wrong, errors = [], dict(zip(found.table["mechanism"], found.table["error"]))
    for name, result in found.results.items():
        error, speaks = errors[name] * (1 + 1e-9), dict[str, float]()
        if found.least is not None:
            speaks["every"] = found.least
        if isinstance(result.design, md.noise.Calibration | md.OptimalNoise):
            sharp = getattr(result.design, "noise", "") in SHARP
            classes = {Scope.INDEPENDENT.value} | ({Scope.LOG_CONCAVE.value} if sharp else set())
            speaks |= {of: bound for of, bound in found.bounds.items() if of in classes}
        wrong += [
            f"{found.question}: {name} has {error}, below {bound} ({of})"
            for of, bound in speaks.items()
            if error < bound
        ]
    return wrong


def answering(question: Any, privacy: Any, results: list[md.Result]) -> list[md.Result]:
    kept = []
    for result in results:
        try:
            question.check("result", result)
            check_same_privacy("result", result, privacy)
        except md.DesignError:
            continue
        kept.append(result)
    return kept


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_no_bound_of_a_random_comparison_is_above_a_row(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = md.Result.errors
    once = functools.cache(lambda result: errors(result))
    monkeypatch.setattr(md.Result, "errors", lambda self, question=None: once(self))
    rng, marked, bounded = np.random.default_rng(34), 0, 0
    for _ in range(count):
        question, privacy, names = drawn(rng)
        fits = answering(question, privacy, noises(privacy))
        chosen = rng.permutation(len(fits))[:2].tolist()
        # one has the name of a candidate that is not on the menu
        also = {("osgt" if k == 0 else f"own {k}"): fits[at] for k, at in enumerate(chosen)}
        try:
            found = md.compare(question, privacy, mechanisms=names, also=also, progress=False)
        except md.InfeasibleError:
            continue
        assert not above(found)
        shown = dict(zip(found.table["mechanism"], found.table["assumes"]))
        assert {name for name in found.results if OTHER in shown[name]} == set(found.others)
        marked, bounded = marked + bool(found.others), bounded + bool(found.bounds or found.least)
    assert marked > count // 3 and bounded > count // 6


@pytest.mark.slow
def test_the_menu_answers_the_question_itself() -> None:
    few = md.Sensitivity(each=[1, 2, 3], l0=2, signed=False)
    both = md.Sensitivity(linf=1, l0=2, l1=2.0, neighbours="replace")
    for asked, privacy, *names in (
        (
            md.NumericQuery(3, few),
            md.ZeroConcentratedDP(0.5),
            "gaussian",
            "allocated gaussian",
            "correlated gaussian",
        ),
        (md.NumericQuery(3, both), PURE, "laplace", "k-norm"),
        (md.NumericQuery(1, md.Sensitivity(linf=2, l1=1)), PURE, "laplace", "staircase", "optimal noise"),
        (md.NumericQuery(2, [[1.0, 1.0], [1.0, 0.0]], rounds=2), APPROXIMATE, "gaussian", "k-norm"),
        (
            md.NumericQuery(integer=True, loss="absolute"),
            PURE,
            "laplace",
            "discrete_laplace",
            "optimal integer noise",
        ),
        (md.LocalReport(1, prior=stats.beta(2, 3)), PURE, "RQM", "OPTM"),
        (md.LocalReport(1, prior=stats.norm(), clients=10), PURE, "RQM"),
        (
            md.MetricReport(md.MetricSpace.line([0.0, 1.0, 3.0])),
            md.MetricDP(1.0),
            "optimal channel",
            "k-ary response",
        ),
    ):
        found = md.compare(asked, privacy, mechanisms=names, progress=False)
        assert set(found.names) == set(names)
        assert not found.others and OTHER not in str(found), asked
        assert all(claim.holds for claim in found.agreements())
        assert all(holds for *_, holds in alone_rows(found))


def alone_rows(found: md.Comparison) -> list[Any]:
    from mechdesign.verifier.reading import NotCovered

    try:
        return list(alone(dumps(found)).rows)
    except NotCovered:
        return []


def other(query: Any, name: str) -> md.Result:
    made = {
        "larger": lambda: md.calibrate("staircase", privacy=PURE, sensitivity=1.0),
        "replaced": lambda: md.calibrate(
            "staircase", privacy=PURE, sensitivity=md.Sensitivity(linf=0.5, neighbours="replace")
        ),
        "more rounds": lambda: md.calibrate("laplace", privacy=PURE, sensitivity=0.5, rounds=2),
        "another loss": lambda: md.Calibration("staircase", PURE, 0.5, loss="absolute").solve(),
        "optimal": lambda: md.OptimalNoise(PURE, 0.75, "squared").solve(),
    }
    return made[name]()


@pytest.mark.parametrize("name", ["larger", "replaced", "more rounds", "another loss", "optimal"])
def test_a_result_for_another_question_is_marked_and_bounds_nothing(name: str) -> None:
    query = md.NumericQuery(sensitivity=0.5)
    found = md.compare(
        query, PURE, mechanisms=["laplace"], also={"staircase": other(query, name)}, progress=False
    )
    assert found.others == ["staircase"] and not found.bounds and found.least is None
    assert "staircase: made for another question" in str(found)
    assert found.to_frame().set_index("mechanism")["assumes"].to_dict() == {"laplace": "", "staircase": OTHER}
    assert all(claim.holds for claim in found.agreements()) and all(holds for *_, holds in alone_rows(found))
    itself = md.compare(query, PURE, mechanisms=["staircase"], progress=False)
    assert not itself.others
    assert itself.bounds["independent noise of one law"] == pytest.approx(0.31467, abs=1e-5)


@pytest.mark.slow
def test_reports_of_another_prior_loss_or_range_are_marked_and_biased_ones_refused() -> None:
    bins, uniform = [-3.0, -0.5, 0.5, 3.0], stats.uniform(-1, 2)
    made = {
        "itself": md.OptimalQuantizer(bins, PURE, uniform),
        "prior": md.OptimalQuantizer(bins, PURE, stats.beta(2, 2, -1, 2)),
        "loss": md.OptimalQuantizer(bins, PURE, uniform, "squared"),
        "range": md.OptimalQuantizer(bins, PURE, uniform, input_range=(-1.2, 1.2)),
        "worst": md.OptimalQuantizer(bins, PURE, uniform, objective="worst"),
    }
    also = {name: design.solve() for name, design in made.items()}
    found = md.compare(md.LocalReport(2), PURE, mechanisms=["RQM"], also=also, progress=False)
    assert set(found.others) == {"prior", "loss", "range", "worst"} and not above(found)
    assert all(claim.holds for claim in found.agreements()) and all(holds for *_, holds in alone_rows(found))
    biased = md.OptimalQuantizer(bins, PURE, uniform, max_bias=0.5).solve()
    with pytest.raises(md.DesignError, match=r"also\['b'\]: max_bias = 0.5: must be 0"):
        md.compare(md.LocalReport(2), PURE, mechanisms=["RQM"], also={"b": biased}, progress=False)


@pytest.mark.parametrize(
    ("member", "value"), [("sensitivity", 0.5), ("sampling_rate", 0.5), ("loss", "absolute")]
)
def test_a_question_that_was_made_smaller_is_refused_by_both_checkers(member: str, value: Any) -> None:
    found = md.compare(md.NumericQuery(), PURE, mechanisms=["laplace", "logistic"], progress=False)
    payload = json.loads(dumps(found))["payload"]
    assert payload["fields"]["question"]["fields"][member] != value
    payload["fields"]["question"]["fields"][member] = value
    text = cheap.sealed(payload)
    assert not all(claim.holds for claim in loads(text).agreements())
    assert not all(holds for *_, holds in alone(text).rows)


def test_a_mark_that_was_taken_out_is_refused_by_both_checkers() -> None:
    query = md.NumericQuery(sensitivity=0.5)
    found = md.compare(
        query, PURE, mechanisms=["laplace"], also={"mine": other(query, "larger")}, progress=False
    )
    text = cheap.sealed(json.loads(dumps(found).replace(OTHER, ""))["payload"])
    assert not all(claim.holds for claim in loads(text).agreements())
    assert not all(holds for *_, holds in alone(text).rows)


# -- What is marked as a lower bound of every mechanism that answers a question is above the error of none that `compare` tries

ROUNDING = 1e-9
"""Relative: of bounds and errors that are sums in doubles."""
Bound = tuple[str, float]


def any_question(seed: int) -> tuple[object, object]:
    """A question and what privacy is required: of ten one is a report, one a place, eight are numbers."""
    rng = np.random.default_rng(seed)
    epsilon = float(np.exp(rng.uniform(math.log(0.2), math.log(6))))
    if seed % 10 == 8:
        low, high = sorted(rng.uniform(-2, 2, 2).tolist())
        shape = rng.choice([0.5, 1.0, 3.0], 2)
        law = stats.beta(*shape, loc=low, scale=high - low)
        prior = None if rng.random() < 0.5 else law
        loss = str(rng.choice(["absolute", "squared"]))
        return md.LocalReport(int(rng.integers(1, 3)), (low, high), prior, loss), md.PureDP(epsilon)
    if seed % 10 == 9:
        points = rng.uniform(0, 3, (int(rng.integers(3, 7)), 2))
        space = md.MetricSpace.euclidean(points if rng.random() < 0.5 else points[:, 0])
        weights = rng.dirichlet(np.ones(space.size))
        loss = str(rng.choice(["metric", "squared", "error"]))
        return md.choose.MetricReport(space, weights, loss), md.MetricDP(epsilon)
    whole = bool(rng.random() < 0.4)
    size = int(rng.choice([1, 1, 1, 2, 3, 5, 8, 20]))
    query = md.NumericQuery(
        size,
        sensitivity(rng, size, whole),
        loss=str(rng.choice(["squared", "absolute"])),
        rounds=int(rng.choice([1, 1, 1, 3])),
        integer=whole,
    )
    delta = float(10 ** rng.uniform(-8, -0.3))
    requirements = md.PureDP(epsilon), md.ApproximateDP(epsilon, delta), md.ZeroConcentratedDP(epsilon**2 / 2)
    return query, requirements[seed % 3]


def sensitivity(rng: np.random.Generator, size: int, whole: bool) -> object:
    """Changes of one kind or another: a number, a ball, a hull, bounds of each, of few, of those that only rise."""
    unit = float(rng.integers(1, 4)) if whole else float(rng.uniform(0.2, 5))
    few = int(rng.integers(1, size + 1))
    kinds = (
        unit,
        md.Sensitivity(linf=unit, l0=few),
        md.Sensitivity(l1=unit, signed=bool(rng.random() < 0.5)),
        md.Sensitivity(l2=unit, signed=bool(rng.random() < 0.5)),
        md.Sensitivity(linf=unit, l1=unit * float(rng.uniform(1, size + 0.5))),
        md.Sensitivity(each=(unit * rng.integers(1, 4, size)).tolist(), l0=few),
        md.Sensitivity.of_contribution(linf=unit, l0=few, dimension=size),
        md.Sensitivity.of_contribution(linf=unit, l0=few, dimension=size, neighbours="replace"),
    )
    return kinds[int(rng.integers(len(kinds)))]


def of_one_number(query: md.NumericQuery, privacy: object, whole: bool) -> float:
    """Each number by itself is one number, of at least the error that the best noise for it has."""
    if isinstance(privacy, md.ZeroConcentratedDP):  # the textbook's conversion, at δ = .01
        privacy = md.ApproximateDP(privacy.rho + 2 * math.sqrt(privacy.rho * math.log(100)), 0.01)
    widths, times = np.unique(query.bounds.widths(query.dimension), return_counts=True)
    found = 0.0
    for width, count in zip(widths.tolist(), times.tolist()):
        if width >= whole:
            alone = md.OptimalNoise(privacy, width, query.loss, integer=whole)
            found += count * (alone.solve(gap=0.02, time_limit=0.3).lower_bound or 0.0)
    return found / query.dimension


def bounds_on(name: str, found: md.Comparison, alone: dict[bool, float]) -> Iterator[Bound]:
    """The lower bounds of every mechanism that hold of one that was tried."""
    question, result = found.question, found.results[name]
    if found.least is not None:
        yield f"least ({found.least_name})", found.least
    for other, speaks in found.results.items():
        among = speaks.among
        if among is None or not among.every or speaks.lower_bound is None or speaks.bound_how == CLAIMED:
            continue
        own = speaks.design.asked_by(question)
        if isinstance(question, md.LocalReport):
            own = speaks.design.allows(result.mechanism.bins)  # it speaks of the outputs that it names
        if own:
            yield other, speaks.lower_bound
    if isinstance(question, md.NumericQuery):
        continuous = not question.integer or question.continuous(result)
        if not question.integer:
            yield "one number", alone[False]
        elif (
            not continuous or question.loss == "absolute"
        ):  # in squares noise that is not whole may cost less
            yield "one whole number", alone[True]


def below(asked: object, privacy: object) -> tuple[list[str], int]:
    """Which candidates have less error than a bound of every mechanism allows, and how many bounds were compared."""
    question, privacy = _parsed(asked, privacy, None)
    found = md.compare(question, privacy, time_limit=0.5, progress=False)
    alone = {}
    if isinstance(question, md.NumericQuery):
        alone = {question.integer: of_one_number(question, privacy, question.integer)}
    wrong, seen = [], 0
    for name, result in found.results.items():
        error = question.error(result)
        for of, bound in bounds_on(name, found, alone):
            seen += bound > 0
            if error < bound * (1 - ROUNDING):
                wrong.append(f"{question}, {privacy}: {name} has {error!r}, below {bound!r} of {of}")
    return wrong, seen


HARD = [
    (
        md.NumericQuery(integer=True),
        md.ApproximateDP(1, 0.5),
    ),  # noise that is not whole costs less in squares
    pytest.param(
        md.NumericQuery(integer=True, loss="absolute"), md.ApproximateDP(1, 0.5), marks=pytest.mark.slow
    ),
    (md.NumericQuery(2, md.Sensitivity(l2=1, signed=False)), md.PureDP(1)),
    *(any_question(seed) for seed in (9, 12)),
]


@pytest.mark.parametrize(("question", "privacy"), HARD, ids=range(len(HARD)))
def test_no_candidate_is_below_a_bound_of_every_mechanism(question, privacy):
    wrong, seen = below(question, privacy)
    assert not wrong and seen
