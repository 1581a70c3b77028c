"""What is marked as a lower bound of every mechanism that answers a question is above the error of none that `compare` tries."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.choose.comparing import _parsed
from mechdesign.evidence.proofs import CLAIMED

ROUNDING = 1e-9
"""Relative: of bounds and errors that are sums in doubles."""
Bound = tuple[str, float]


def drawn(seed: int) -> tuple[object, object]:
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
    *(drawn(seed) for seed in (9, 12)),
]


@pytest.mark.parametrize(("question", "privacy"), HARD, ids=range(len(HARD)))
def test_no_candidate_is_below_a_bound_of_every_mechanism(question, privacy):
    wrong, seen = below(question, privacy)
    assert not wrong and seen
