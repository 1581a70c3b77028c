"""That nothing which is released is left out of the timing, and that a release whose time tells is found."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from mechdesign import learning
from mechdesign.evidence import serialize
from mechdesign.evidence.serialize import KINDS
from tests.timing import __main__ as timing
from tests.timing.__main__ import allowed, measured, told_apart
from tests.timing.releases import RELEASES, WITHOUT


def released_kinds() -> set[str]:
    """Kinds of saved objects that have a `release` or a `fit`."""
    for module in set(KINDS.values()):
        importlib.import_module(module)
    classes = {kind: cls for kind, cls in serialize._CLASSES.items() if kind in KINDS}
    saved = {k for k, cls in classes.items() if hasattr(cls, "release") or hasattr(cls, "fit")}
    return saved | {name for name in dir(learning) if hasattr(getattr(learning, name), "fit")}


def test_every_release_of_the_package_is_timed() -> None:
    assert {release.kind for release in RELEASES.values()} | set(WITHOUT) == released_kinds()


@pytest.mark.parametrize("name", RELEASES)
def test_each_is_of_its_kind_and_answers(name: str) -> None:
    release = RELEASES[name]
    kind = type(release.mechanism)
    assert serialize._KINDS.get(kind, kind.__name__) == release.kind
    for _, call, (one, other) in release.calls():
        call(one), call(other)
        assert np.shape(one) == np.shape(other)
        assert not np.array_equal(one, other)


def test_times_that_tell_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the calls move."""
    rng, now = np.random.default_rng(0), [0]

    def call(x: int) -> None:
        now[0] += int(rng.integers(100, 200)) + 500 * x

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: now[0]))
    assert told_apart(*measured(call, (0, 1), 400)) > 0.9
    assert told_apart(*measured(call, (1, 1), 400)) < allowed(0.1, 0.0, 400) + 0.1
