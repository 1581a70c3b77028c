"""Every error that a value of the data raises in a release or a fit is on the list of `DataError`, and quotes nothing."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from tests.timing.releases import RELEASES, Release

NUMBERS = [
    *(math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 1e300, 1e100, -1e17, 2.0**53 + 2, 300.0, 7.0, 2.0, 1.0),
    *(0.5, 0.1, 1e-170, 5e-324, 0.0, -0.0, -5e-324, -0.5, -1.0, -3.0),
]  # fmt: skip
ODD = [None, "7", "seven", 2**60 + 1, -(10**400), 1j, True, np.ma.masked]
"""What may stand in a list of records in the place of a number."""

NUMBER = {"must be finite numbers"}
NOISE = NUMBER | {"would be rounded"}
ITEMS = {"must be integers in"}
SHARES = NOISE | {"must be non-negative", "must sum to 1"}
RANGE = NOISE | {"must be in"}
BALL = NOISE | {"must be at most"}
STATED = {
    "discrete Gaussian": NOISE | {"must be whole numbers"},
    "optimal choice": NOISE | {"must be whole numbers"},
    "optimal integer noise": NUMBER | {"must be whole numbers"},
    **dict.fromkeys(("optimal quantizer", "metric quantizer", "RQM", "biased selection", "integer table"), RANGE),
    "coordinates": RANGE,
    **dict.fromkeys(("sphere", "sphere, messages", "random directions", "sampled coordinates", "sampled signs"), BALL),
    **dict.fromkeys(("exponential channel", "local report", "local histogram", "bounded count", "clustered response", "Hadamard response"), NUMBER | ITEMS),
    **dict.fromkeys(("items of users", "sampled items of users", "histogram of users"), NUMBER | ITEMS),
    **{name: SHARES for name in RELEASES if name.startswith("linear query")},
    "plan": NOISE | {"must be whole numbers"},
    "plan of workloads": NOISE | {"must count at most"},
    "declared table": {"must be inputs of"},
    "Laplace histogram": SHARES - {"would be rounded"},
}  # fmt: skip
"""What each release refuses, in the words of `DataError`; noise refuses `NOISE`."""
FITS = (
    "principal components",
    "bounded regression",
    "bounded classification",
    "regression of counts",
)


def calls(release: Release) -> Iterator[Callable[[Any], object]]:
    """The call that is timed, and the one that does not clip."""
    yield release.method(release.mechanism)
    if "clip" in inspect.signature(getattr(release.mechanism, "release", release.made)).parameters:
        yield release.mechanism.release


def said(call: Callable[[Any], object], x: object) -> list[str]:
    """What the call says in warnings and in an error; an error of the data is the only one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call(x)
        except md.DataError as error:
            return [*(str(w.message) for w in caught), str(error)]
    return [str(w.message) for w in caught]


def templates(release: Release) -> Iterator[np.ndarray]:
    """Data of each shape that is timed."""
    shapes = {np.shape(x): x for pair in release.pairs(release.mechanism).values() for x in pair}
    return (np.asarray(x, dtype=float) for x in shapes.values())


def changed(base: np.ndarray) -> Iterator[object]:
    """One or all numbers replaced; and the same in lists, with what is no number."""
    for value in NUMBERS:
        for at in (slice(0, 1), slice(-1, None), slice(None)):
            x = base.copy().ravel()
            x[at] = value
            yield x.reshape(base.shape)
    for value in ODD:
        x = base.astype(object).ravel()
        x[-1] = value
        yield x.reshape(base.shape).tolist()
    yield from (np.full_like(base, 1e300) * [1, -1][k] for k in range(2))


def stated(release: str, messages: set[str]) -> set[str]:
    """The words of the list for these messages, each of which is worded alike whatever the value was."""
    words = STATED.get(release, NOISE)
    if release.startswith("plan"):  # which names the task
        messages = {message.partition(": ")[2] for message in messages}
    found = [[m for m in messages if word in m] for word in words]
    assert sum(map(len, found)) == len(messages), messages
    assert max(map(len, found), default=0) <= 1, messages
    return {word for word, those in zip(words, found) if those}


@pytest.mark.parametrize("name", [name for name in RELEASES if name not in FITS])
def test_what_a_release_refuses_is_what_is_stated(name: str) -> None:
    found = set()
    for call in calls(RELEASES[name]):
        for base in templates(RELEASES[name]):
            messages = set(itertools.chain(*(said(call, x) for x in changed(base))))
            found |= stated(name, messages)
    assert found == STATED.get(name, NOISE)
    assert all(word in (md.DataError.__doc__ or "") for word in found)


@pytest.mark.parametrize("name", RELEASES)
def test_each_docstring_names_what_is_refused(name: str) -> None:
    mechanism = RELEASES[name].mechanism
    if name in FITS:
        assert "The guarantee does not cover" in " ".join((inspect.getdoc(mechanism) or "").split())
        return
    named = {"stream": "matrix mechanism, stream", "encode": "sphere, messages"}
    for method in ("release", *(m for m, of in named.items() if name == of)):
        assert "DataError" in (inspect.getdoc(getattr(mechanism, method)) or ""), method


@pytest.mark.parametrize("name", FITS)
def test_fits_refuse_what_is_no_finite_number_and_nothing_else(name: str) -> None:
    """Constant columns, a single class, records of any size: not a word."""
    release = RELEASES[name]
    call, (base, _) = release.method(release.mechanism), next(iter(release.pairs(release.mechanism).values()))
    for value, column in itertools.product(NUMBERS, (0, 1, slice(None))):
        for rows in (slice(0, 1), slice(None)):
            x = base.copy()
            x[rows, column] = value
            with np.errstate(invalid="ignore"):
                if np.isfinite(x).all():
                    assert said(call, x) == []
                    continue
            with pytest.raises(md.DataError, match="must be finite numbers: nothing infinite"):
                call(x)
    fit, y = release.mechanism.fit, np.sign(base[:, 0])
    for odd in (None, "seven", 10**400, 1j, [1.0, 2.0]):
        rows = base.tolist()
        rows[0][0] = odd
        with pytest.raises(md.DataError, match="must be finite numbers: nothing infinite"):
            fit(rows, y)


def test_counts_that_are_not_those_of_the_sizes_are_refused() -> None:
    release = RELEASES["linear query, several users"].mechanism
    for counts, sizes, words in (
        ([5.0, 1, 0, 0, 0, 0], 4, "must be equal"),
        ([0.5, 0.5, 0, 0, 0, 0], 4, "is for whole counts"),
        ([5.0, 1, 0, 0, 0, 0], None, "must be given with"),
    ):
        with pytest.raises(md.DataError, match=words):
            release.release(counts, sizes=sizes)
        assert words in (md.DataError.__doc__ or "")


@pytest.mark.parametrize("inputs", ["ball", "sphere"])
def test_vectors_of_any_length_are_clipped(inputs: str) -> None:
    """One without a direction was refused on a sphere, and lengths beyond doubles became no numbers."""
    mechanism = md.SphereQuantizer(20, 3, md.PureDP(1.0), inputs=inputs, radius=1e-50)
    axis = np.eye(1, 20)[0]
    for x in (axis * 0.0, axis * 1.7e308, np.full(20, -1.7e308), axis * 5e-324):
        lifted = mechanism.lifted(x, clip=True)
        assert np.linalg.norm(lifted, axis=1) == pytest.approx(1.0)
        assert np.isfinite(mechanism.release(x, clip=True)).all()
    assert mechanism.lifted(axis * 1.7e308, clip=True)[0, 0] == pytest.approx(1.0)
    with pytest.raises(md.DataError, match="must be"):
        mechanism.release(axis, clip=False)


@pytest.mark.skipif(np.finfo(np.longdouble).max <= np.finfo(float).max, reason="no long doubles here")
def test_a_number_beyond_doubles_is_refused_without_a_warning() -> None:
    noise = md.AdditiveNoise(stats.laplace(scale=2.0), 1.0)
    for far in (np.longdouble("1e4000"), [np.longdouble("-1e4000")], 10**400):
        assert said(noise.release, far) == [
            "x: must be finite numbers of at most 1.8e308; true and false are none, nor are texts, dates and what is missing"
        ]
