"""Every public name is called with wrong types, shapes, NaN, infinities, empty and huge values.

Nothing but the package's own errors may leave, and each call is bounded in time and memory. What Python itself says
about a signature is not asked: arguments always bind.
"""

import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import math
import os
import re
import resource
import signal
import types
import warnings
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cheap
import cvxpy as cp
import house
import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats

import mechdesign as md
from mechdesign.accounting import privacy_profile
from mechdesign.evidence.proofs import Proof
from mechdesign.problem.spine import Design
from mechdesign.solvers import registry

if find_spec("torch"):  # a call that the clock interrupts would leave it half imported
    import torch  # noqa: F401

SECONDS = 60.0  # against a call that hangs
MEMORY = 3 << 30
EACH = 45 if os.environ.get("MECHDESIGN_NIGHTLY") else 5  # bad values a parameter

Raising = type(
    "Raising",
    (),
    dict.fromkeys(("__repr__", "__float__", "__iter__", "__len__", "__array__"), lambda *_: 1 / 0),
)
DEEP = functools.reduce(lambda held, _: [held], range(3000), 1.0)
"""Lists whose representation Python does not make."""

BAD: list[Any] = [
    Raising(), DEEP,
    object(), "nonsense", "\ud800", b"x", None, True, 1j, {}, {"a": 1}, {1, 2}, lambda: 0, float,
    math.nan, math.inf, -math.inf, -1, 0, 1e308, 1e-320, 10**400, -(10**30), 2.5,
    [], [math.nan], [[1], [2, 3]], ["a"], [[]], "", (1, None), range(3), stats.norm, slice(1),
    np.array(["a"]), np.zeros((0, 3)), np.zeros((2, 2, 2)), np.array([math.inf, 1.0]), np.array(3), np.array([1j]),
    np.array([3.0, 1.0, 2.0]), np.full(3, 1e300), np.array([None, 1]), np.datetime64("now"), [10**400, 1],
    Decimal("NaN"), Decimal("sNaN"), Fraction(10**400, 3), np.longdouble(2), pd.NaT, [pd.NA], [np.ma.masked], pd.Series([1, None], dtype="Int64"),
    pd.DataFrame({"a": [1.0]}), sparse.csr_array(np.eye(2)), np.matrix([[1.0, 2.0]]), np.array([(1, 2.0)], dtype="i4,f8"), iter(()), memoryview(b"xx"),
    np.timedelta64(1), 5e-324, 2**63, np.float32(2), np.ones((3, 1)), ValueError, [[[]]],
]  # fmt: skip
ALWAYS = (np.ma.masked, pd.NA)
"""What is neither true nor false, or looks like an array and cannot be read as one: no flag, list or number checks find it by chance."""


@functools.cache
def good() -> dict[str, Any]:
    """A value that most functions accept for a parameter of this name."""
    space = md.MetricSpace.line([0.0, 1.0, 3.0])
    channel = md.channels.ClusteredResponse(md.MetricSpace.clustered(2, 2, within=0.1), alpha=5.0)
    x = cp.Variable(2, nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum(x) >= 1])
    result = cheap.solved("optm")
    quantizer = md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1))
    return {
        "alpha": 1.0, "b": 2, "bins": cheap.BINS, "channel": channel, "coordinate": quantizer, "count": 2, "data": [0, 1],
        "delta": 1e-6, "design": md.OptimalQuantizer(cheap.BINS, cheap.PURE, cheap.UNIFORM), "dimension": 2,
        "epsilon": 1.0, "family": "laplace", "gamma": 0.5, "histogram": [0.5, 0.25, 0.25], "input_range": (-1, 1),
        "item": md.ItemwiseRelease(space, alpha=10.0, delta=1e-6, items=5, users=30), "items": 5, "law": stats.laplace(),
        "loss": "absolute", "m": 4, "max_abs": 3.0, "mechanism": quantizer, "moved": 0.1, "name": "highs",
        "noise": "laplace", "norm": 1, "over": "epsilon", "path": "file", "points": [0.0, 1.0], "prior": cheap.UNIFORM,
        "privacy": cheap.PURE, "problem": problem, "q": 0.3, "query": md.user_level.LinearQuery.average(space),
        "radius": 0.1, "report": None, "result": result, "rng": 0, "rho": 0.1, "samples": 20, "scale": 1.0,
        "sensitivities": [1.0, 2.0], "sensitivity": 1.0, "size": 3, "solution": md.solvers.solve(problem), "solver": "highs",
        "space": space, "step": 0.5, "total": 100, "users": 30, "values": [1.0], "vectors": np.eye(2), "x": [0.1, 0.2],
        "grid": md.Grid(delta=[1.6], q=[0.4]), "value": 1.0, "law_or_term": stats.laplace(), "time_limit": 0.5,
    }  # fmt: skip


def names() -> Iterator[tuple[str, Any]]:
    """Every public name of every stub, once."""
    seen: set[int] = set()
    for stub in sorted(house.PACKAGE.rglob("__init__.pyi")):
        dotted = ".".join(stub.relative_to(house.ROOT).with_name("__init__").parts[:-1])
        module = import_module(dotted)
        for name in module.__all__:
            value = getattr(module, name)
            if (
                callable(value)
                and (getattr(value, "__module__", "") or "").startswith("mechdesign")  # `Minimize` is CVXPY's
                and id(value) not in seen
                and not isinstance(value, (stats.rv_continuous, stats.rv_discrete, enum.EnumType))
            ):
                seen.add(id(value))
                yield f"{dotted}.{name}", value


HOOKS = {
    "costs_at_least", "least", "own",  # of a question, for comparisons; of a plan, for its bound
    "compiled", "counted", "from_fields", "over_cells", "objective_of", "unknown_of",
    "deployed", "dual", "explained", "found", "largest_bias", "law_at", "tangent_size", "value_of", "law", "law_of", "with_outputs", "linear_bound", "of_program", "proved_bound", "consumes",
}  # fmt: skip
"""Methods that other parts of the package call, with what they have made themselves."""


def hook(owner: type, function: Any) -> bool:
    """Whether the package alone calls a method: with a result of the design, a clock, a law, or a certificate of its own."""
    taken = set(inspect.signature(function).parameters)
    if getattr(function, "__name__", "") in HOOKS or "source" in taken:  # of randomness
        return True
    if not issubclass(owner, Design | Proof):
        return False
    return issubclass(owner, Proof) or bool(
        taken & {"result", "clock", "law", "outputs", "question", "stated"}
    )


def targets() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions and constructors, the public methods of public classes, and those of cheap instances."""
    instances = {type(part): part for part in parts()}
    seen: set[Any] = set()
    for label, value in names():
        if not inspect.isabstract(value):
            yield label, value
        if not inspect.isclass(value) or issubclass(value, Exception):
            continue
        for name, member in inspect.getmembers(value):
            at_home = (getattr(member, "__module__", "") or "").startswith("mechdesign")
            if (
                name.startswith("_")
                or not at_home
                or not callable(function := getattr(member, "__func__", member))
                or function in seen
            ):
                continue
            seen.add(function)
            if hook(value, function):
                continue
            if isinstance(inspect.getattr_static(value, name), (classmethod, staticmethod)):
                yield f"{label}.{name}", member
            elif value in instances and callable(member):
                yield f"{label}().{name}", getattr(instances[value], name)


def parts() -> Iterator[Any]:
    """One instance of many public classes."""
    for name in cheap.DESIGNS:
        result = cheap.solved(name)
        yield from (result, result.design, result.mechanism, result.certificate)
    for value in cheap.objects():
        yield from value if isinstance(value, list) else [value]
    yield from good().values()
    yield md.vectors.ModularSum(2, 8)


def usual_of(function: Callable[..., Any]) -> tuple[dict[str, Any], list[str]]:
    """Good values, where they are known, for what has no default; and all parameters that are given by name."""
    try:
        taken = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}, []
    asked = [p for p in taken if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.default is p.empty]
    named = [p for p in taken if p.kind not in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY)]
    words = ["nonsense" if p.kind is p.VAR_KEYWORD else p.name for p in named]
    return {p.name: good().get(p.name, 1.0) for p in asked}, words


def calls(label: str, function: Callable[..., Any], each: int = EACH) -> Iterator[dict[str, Any]]:
    """Arguments for `function`: each parameter in turn takes bad values, the others good ones where one is known."""
    usual, words = usual_of(function)
    for word in words:
        for bad in some(f"{label} {word}", each):
            yield {**usual, word: bad}
    for bad in some(label, each):
        yield dict.fromkeys(usual, bad)


def some(label: str, each: int) -> list[Any]:
    """So many of the bad values, others for every label."""
    start = zlib.crc32(label.encode())
    return [*ALWAYS] + [BAD[(start + 7 * k) % len(BAD)] for k in range(min(each, len(BAD)))]


class TooLong(BaseException):
    """A call that was not over in time."""


def outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """What is wrong with how the call ended, None if nothing."""

    def stop(*_: Any) -> None:
        raise TooLong

    # The processor's clock, as the machine is shared; ten times as much of the wall's, for a call that only waits.
    previous = signal.signal(signal.SIGPROF, stop), signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 10 * SECONDS)
    try:
        answer = function(**arguments)
        if isinstance(answer, types.GeneratorType):
            list(itertools.islice(answer, 3))
    except (md.MechdesignError, OSError):
        return None
    except TypeError as error:
        # Keywords that are handed on, to dataclasses.replace say.
        return (
            None if "unexpected keyword argument 'nonsense'" in str(error) else f"TypeError: {error!s:.100}"
        )
    except TooLong:
        return f"longer than {SECONDS} s"
    except BaseException as error:
        return f"{type(error).__name__}: {error!s:.100}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, previous[0])
        signal.signal(signal.SIGALRM, previous[1])
    return None


def room_of(label: str) -> str:
    """The room of a public name; "" of one that the package has at its top."""
    return label.split(".")[1] if label.count(".") > 1 and label.split(".")[1].islower() else ""


def tried(room: str, each: int = EACH) -> tuple[int, list[str]]:
    """Number of calls of one room's names, and those that ended wrong."""
    count, wrong = 0, []
    for label, function in targets():
        if room_of(label) != room:
            continue
        for arguments in calls(label, function, each):
            count += 1
            what = outcome(function, arguments)
            if what is not None:
                shown = ", ".join(
                    f"{k}={v!r:.40}" for k, v in arguments.items() if k not in good() or v is not good()[k]
                )
                wrong.append(f"{label}({shown}): {what}")
    return count, wrong


ROOMS = [
    "", "accounting", "channels", "choice", "choose", "evidence", "learning", "model", "noise", "plan", "problem",
    "quantizers", "solvers", "spaces", "user_level", "vectors",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_only_the_packages_errors_leave(room: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    # On top of what is mapped by now: optional libraries that other tests loaded count for gigabytes.
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, limits[1]))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            count, wrong = tried(room)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert not wrong, f"{len(wrong)} of {count} calls:\n" + "\n".join(wrong[:200])


@pytest.mark.slow
def test_calls_are_enough_and_of_every_room() -> None:
    found = [room_of(label) for label, function in targets() for _ in calls(label, function)]
    assert len(found) >= 10_000 and set(found) == {*ROOMS}


@pytest.mark.filterwarnings("ignore")
def test_fields_are_checked_where_they_are_replaced() -> None:
    """Of one instance of every class, each field in turn."""
    found = {type(part): part for part in parts() if dataclasses.is_dataclass(part)}
    ours = {kind: part for kind, part in found.items() if kind.__module__.startswith("mechdesign")}
    assert len(ours) > 90
    for part in ours.values():
        for field, bad in itertools.product(
            dataclasses.fields(part), [*WRONG, [[1], [2, 3]], np.ma.masked, 1j]
        ):
            if field.init:
                with contextlib.suppress(md.MechdesignError):
                    dataclasses.replace(part, **{field.name: bad})


# What another parameter, or a part of the value, is called in the message.
OTHERWISE = {
    "count": "knots", "delta": "bins", "dimension": "count", "features": "matrix", "knots": "bins", "name": "solver",
    "prior": "samples", "random_state": "rng", "space": "distances|outputs", "value": "sensitivity",
}  # fmt: skip


WRONG = object(), math.nan, -1.0, "nonsense", [], None, Raising(), DEEP


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("room", ROOMS)
def test_what_a_parameter_does_not_take_is_refused_by_its_name(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every public function that answers good values: one bad value among them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTRY", {**registry._REGISTRY})  # one call takes a solver out
    count = 0
    for label, function in targets():
        usual, words = usual_of(function) if room_of(label) == room else ({}, [])
        words = [word for word in words if word != "nonsense"]  # handed on
        try:
            answers = bool(words) and [function(**usual)]
        except Exception:
            answers = False  # these are no good values for it
        for word, bad in itertools.product(words if answers else (), WRONG):
            try:
                function(**{**usual, word: bad})
            except md.DesignError as error:
                count += 1
                assert re.search(f"{word}|{OTHERWISE.get(word, word)}", str(error)), (label, word, bad)
            except md.MechdesignError:
                pass
    assert room or count > 100


# -- True and false are no numbers: NumPy reads them as 1 and 0, in arrays, in lists and among numbers -------

LAW, PURE, APPROXIMATE = stats.laplace(), md.PureDP(1.0), md.ApproximateDP(1.0, 1e-6)
ADDITIVE = md.AdditiveNoise(stats.laplace(scale=2.0), 1.0, 2)
QUANTIZER = md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1))

# What is asked for a pair of numbers.
PAIRS: dict[str, Callable[[Any], Any]] = {
    "sensitivities": lambda v: md.NoiseAllocation("laplace", v, PURE),
    "each": lambda v: md.Sensitivity(each=v),
    "release additive": ADDITIVE.release,
    "privacy_profile": lambda v: privacy_profile(LAW, 1.0, v),
    "grid": lambda v: md.Grid(delta=v),
}  # fmt: skip
# What is asked for one number.
SINGLE: dict[str, Callable[[Any], Any]] = {
    "epsilon": md.PureDP,
    "sensitivity": lambda v: md.Calibration("laplace", PURE, v),
    "time_limit": lambda v: md.Calibration("laplace", PURE, 1.0).solve(time_limit=v),
    "release": lambda v: md.AdditiveNoise(LAW, 1.0).release(v),
    "sample": QUANTIZER.sample,
    "x": QUANTIZER.release,
    "rng": lambda v: ADDITIVE.sample([1.0, 2.0], rng=v),
}


@pytest.mark.parametrize("name", sorted(PAIRS))
@pytest.mark.parametrize(
    "bad", [[False, True], (0.5, True), np.array([0.5, np.True_], dtype=object)], ids=str
)
def test_pairs(name: str, bad: Any) -> None:
    with pytest.raises(md.DesignError) as caught:
        PAIRS[name](bad)
    quoted = "True" in str(caught.value) and " = " in str(caught.value)
    assert quoted != isinstance(caught.value, md.DataError)  # data are not quoted, arguments are


@pytest.mark.parametrize("name", sorted(SINGLE))
@pytest.mark.parametrize("bad", [True, np.True_, np.array(True)], ids=["True", "NumPy's", "array"])
def test_single_numbers(name: str, bad: Any) -> None:
    with pytest.raises(md.DesignError):
        SINGLE[name](bad)


FAR: dict[str, Callable[[], Any]] = {
    **{
        f"plan {asked}": lambda asked=asked: md.Plan({"a": md.Count(), "b": md.Sum(5.0)}, asked).solve()
        for asked in (md.PureDP(1e-300), md.ZeroConcentratedDP(1e-300), md.GaussianDP(1e-200))
    },
    "targets": lambda: md.Plan({"a": md.Count()}, PURE, targets={"a": 1e200}).solve(),
    "stream": lambda: md.MatrixMechanism(
        md.Workload.prefix_sums(5), md.GaussianDP(1e-200), buffers=1
    ).solve(),
    "allocation": lambda: md.NoiseAllocation("gaussian", [1.0, 2.0], md.GaussianDP(1e-200)).solve(),
    "covariance": lambda: md.CorrelatedGaussian(np.eye(3), md.GaussianDP(1e-200)).solve(),
    "correlated": lambda: md.CorrelatedGaussian(np.eye(3), md.ZeroConcentratedDP(1e-300)).solve(),
    "no problem": lambda: md.search(lambda x: None, md.Grid(x=[1.0])),  # type: ignore[misc]
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("asked", FAR)
def test_what_doubles_do_not_hold_is_refused_with_a_remedy(asked: str) -> None:
    with pytest.raises(md.DesignError, match=r"choose other units|must allow|widen it"):
        FAR[asked]()
