"""Faults that were once reported, where no test of a room says what is right or refused; the numbers are those of the report."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mechdesign as md

ONE, WEAK = md.PureDP(1.0), md.ApproximateDP(1.0, 1e-6)
MENU = {"c1": md.Count(), "c2": md.Count(), "total": md.Sum(1000.0)}
CASES: dict[str, Callable[[], None]] = {}


def fault(number: str, **cases: Any) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Two cases of a promise: what each is given, by name."""

    def add(promise: Callable[[Any], None]) -> Callable[[Any], None]:
        CASES.update({f"{number} {name}": partial(promise, given) for name, given in cases.items()})
        return promise

    return add


def noise(family: Any, privacy: Any, sensitivity: Any = 1.0, **options: Any) -> md.Result:
    return md.calibrate(family, privacy=privacy, sensitivity=sensitivity, **options)


def refused(words: str, call: Callable[..., Any]) -> None:
    with pytest.raises(md.DesignError, match=words) as caught:
        call()
    print(f"refused: {caught.value}")


@fault("B10", euros=MENU, cents=MENU | {"total": md.Sum(100_000.0)})
def _(tasks: dict[str, Any]) -> None:
    table = md.Plan(tasks, WEAK).solve().to_frame().set_index("task")
    assert table["standard_deviation"][["c1", "c2"]].tolist() == pytest.approx([4.2209] * 2, rel=1e-3)
    assert table["share"]["total"] == pytest.approx(1 / 3, abs=0.01)


def sampled(family: str, epsilon: float, delta: float, change: float, rate: float) -> float:
    return noise(family, md.ApproximateDP(epsilon, delta), change, sampling_rate=rate).value ** 0.5


def huber(epsilon: float, delta: float) -> float:
    return noise("flipped_huber", md.ApproximateDP(epsilon, delta)).value


SAMPLES = np.random.default_rng(0).normal(0.5, 0.1, 1000)
RIGHT: dict[str, tuple[Callable[[], float], float]] = {
    "A6 stated": (lambda: md.OPTM([-4, -0.6, 0.6, 4], ONE, SAMPLES, input_range=(-1, 1)).solve().mechanism.input_range[1], 1.0),
    "B13 large": (lambda: sampled("gaussian", 1000, 1e-5, 1.0, 0.1), 0.024254598),
    "B13 whole": (lambda: sampled("discrete_gaussian", 1.0, 0.27122238, 3.0, 0.4), 0.993),
    "B15 report": (lambda: len(md.compare(md.CategoryReport(categories=20_000), ONE, progress=False).table), 6),
    "B16 million": (lambda: 1 + md.VectorQuantizer(1_000_000, md.PureDP(8.0), bits=16).solve().gap, 1.00054),
    "C22 small": (lambda: huber(0.03, 1e-3), 1344.5),
    "C22 middle": (lambda: huber(0.3, 0.01), 14.026),
    "C22 large": (lambda: huber(1.0, 0.03), 1.431),
    "C22 never less": (lambda: huber(0.1, 0.2), noise("gaussian", md.ApproximateDP(0.1, 0.2)).value),
    "C22 nor here": (lambda: huber(0.5, 0.3), 0.749729),
}  # fmt: skip
REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "A6 optm": ("input_range", lambda: md.OPTM([-4, 0.2, 0.6, 4], ONE, SAMPLES)),
    "A6 optimal": ("input_range", lambda: md.OptimalQuantizer([-4, 0.2, 0.6, 4], ONE, SAMPLES)),
    "B15 range": ("by 1e-100 to 1e100", lambda: md.Mean(0, 1e308, n=5)),
    "B15 whole range": ("by 1e-100 to 1e100", lambda: md.Mean(-1e308, 1e308, n=5)),
    "B15 narrow range": ("by 1e-100 to 1e100", lambda: md.Mean(0.0, 1e-200, n=5)),
    "B15 no range": ("by 1e-100 to 1e100", lambda: md.Mean(3.0, 3.0, n=5)),
    "B21 masked": ("clip", lambda: md.Sum(np.ma.masked)),
    "B21 masked end": ("upper", lambda: md.Mean(0, np.ma.masked, n=5)),
    "D26 faults": ("2 faults", lambda: md.audit_table(table("x,-2,2\n-1,b,27%\n1,a,73%\n"), privacy=ONE, percent=True)),
    "D26 fault": ("no number", lambda: md.audit_table(table("x,-2,2\n-1,73%,27%\n1,a,73%\n"), privacy=ONE, percent=True)),
}  # fmt: skip


def table(text: str) -> str:
    Path("table.csv").write_text(text)
    return "table.csv"


def right(given: tuple[Callable[[], float], float]) -> None:
    found, true = given[0](), given[1]
    print(f"{found:.6g} where {true:.6g} is right")
    assert found == pytest.approx(true, rel=5e-4)


CASES |= {name: partial(right, given) for name, given in RIGHT.items()}
CASES |= {name: partial(refused, *given) for name, given in REFUSED.items()}


@pytest.mark.parametrize("name", [*CASES])
def test_what_was_wrong_is_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CASES[name]()
