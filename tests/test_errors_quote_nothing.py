"""Whatever is given where data are received: no message quotes it, and no exception of another library leaves."""

import datetime
import inspect
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import mechdesign as md
from mechdesign import channels, learning
from mechdesign.channels import Channel, ClusteredResponse, HadamardResponse
from mechdesign.shell import commands
from mechdesign.vectors import ModularSum, flower_update
from tests.timing.releases import CLUSTERS, LINE, RELEASES

MARK = re.compile(r"SECRET|8231|8\.23e")
INPUTS = 200


class Loud:
    """It shows what it holds whenever it is read."""

    def __repr__(self) -> str:
        return "SECRET"

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("SECRET")

    __float__ = __int__ = __len__ = __array__


LEAVES = [
    *("SECRET-8231", b"SECRET", 8231.4375, 8231, -8231.4375, np.float32(8231.5), np.int64(8231), 8231 * 10**400),
    *(Decimal("8231.4375"), Fraction(131703, 16), 8231.4375 + 1j, datetime.datetime(8231, 1, 1), Loud()),
    *(np.datetime64("8231-01-01"), np.timedelta64(8231, "s"), pd.Timestamp("2010-08-23"), pd.NA, pd.NaT),
    *(None, math.nan, math.inf, True, np.ma.masked, ["SECRET"], {"SECRET": 1}, "8231.4375", np.array([8231.0])),
]  # fmt: skip
WHOLE: list[Callable[[], Any]] = [
    *(lambda leaf=leaf: leaf for leaf in LEAVES),
    lambda: np.full(8231, 8231.4375),
    lambda: np.zeros((1, 2, 8231)),
    lambda: np.zeros((8231, 2)),
    lambda: range(8231),
    lambda: iter(["SECRET"]),
    lambda: Counter(["SECRET-8231", "SECRET-8231"]),
    lambda: {"SECRET-8231"},
    lambda: memoryview(b"SECRET-8231"),
    lambda: sparse.csr_matrix(np.full((3, 2), 8231.4375)),
    lambda: pd.Series(["SECRET-8231", "b"], dtype="category"),
    lambda: pd.Series([8231, None], dtype="Int64"),
    lambda: np.ma.array([8231.4375, 1.0], mask=[True, False]),
]


def doctored(rng: np.random.Generator, good: Any) -> Any:
    """The data with a marked secret in a random place, in a random container; now and then something else altogether."""
    if rng.random() < 0.15:
        return WHOLE[rng.integers(len(WHOLE))]()
    found = np.array(good, dtype=object)
    flat = found.reshape(-1)
    flat[rng.integers(flat.size)] = LEAVES[rng.integers(len(LEAVES))]
    way, last = rng.integers(12), found.shape[-1] if found.ndim else 1
    if way < 2:
        return found.tolist()
    if way == 2:
        return found
    if way == 3:
        return tuple(found.tolist()) if found.ndim else (found.tolist(),)
    if way == 4:
        return np.ma.array(found, mask=rng.random(found.shape) < 0.3)
    if way == 5:
        return pd.Series(flat, index=[f"SECRET-{k}" for k in range(flat.size)])
    if way == 6:
        return pd.DataFrame(found.reshape(-1, last), columns=[f"SECRET-{k}" for k in range(last)])
    if way == 7:
        return pd.DataFrame(found.reshape(-1, last))
    if way == 8:
        return (part for part in (found if found.ndim else [found[()]]))
    if way == 9:
        return {f"SECRET-{k}": part for k, part in enumerate(flat)}
    if way == 10:
        return [found.tolist(), [8231.4375]]
    return [*flat, "SECRET-8231"] if rng.random() < 0.5 else np.array([str(part) for part in flat])


def messages(call: Callable[[Any], object], x: Any) -> Iterator[str]:
    """What is said of data, in warnings, in an error, and in the errors that a traceback would print with it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error: BaseException | None = None
        try:
            call(x)
        except md.MechdesignError as raised:
            error = raised
    yield from (str(warning.message) for warning in caught)
    while error is not None:
        yield f"{error} {error.args} {vars(error)}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def check(name: str, call: Callable[[Any], object], good: Any) -> None:
    """Good data are taken, and of bad ones nothing is said but what is not in them."""
    call(good)
    rng = np.random.default_rng(1)
    for k in range(INPUTS):
        try:
            for said in messages(call, doctored(rng, good) if k else [Loud(), Loud()]):
                assert not MARK.search(said), said
        except Exception as error:
            error.add_note(f"{name}, input {k}")
            raise


RECORDS = np.random.default_rng(0).uniform(-1, 1, (12, 2))
TARGETS = RECORDS[:, 0] / 2
FRAME = pd.DataFrame(RECORDS, columns=["a", "b"])
COMMON: dict[str, Any] = {"privacy": md.ApproximateDP(1.0, 1e-6), "random_state": 0}
BOUNDED = {**COMMON, "bounds": (-1, 1), "target_bounds": (-1, 1)}
COUNTS: dict[str, Any] = {**BOUNDED, "target_bounds": (0, 9), "loss": "poisson", "steps": 2}
LABELS = np.where(TARGETS > 0, "yes", "no")


@cache
def fitted() -> dict[str, tuple[Any, Any]]:
    models = {
        "linear": (learning.PrivateLinearRegression(**BOUNDED), TARGETS),
        "logistic": (learning.PrivateLogisticRegression(**COMMON, bounds=(-1, 1), classes=["no", "yes"], steps=2), LABELS),
        "counts": (learning.PrivateGeneralizedLinearRegression(**COUNTS), np.arange(12.0) % 4),
        "components": (learning.PrivatePCA(**COMMON, bounds=1.0), TARGETS),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: (model.fit(FRAME, y), y) for name, (model, y) in models.items()}


@pytest.mark.parametrize("name", ["linear", "logistic", "counts", "components"])
def test_no_estimator_quotes_its_data(name: str) -> None:
    model, y = fitted()[name]
    again = model.__class__(**model.get_params())
    check("X", lambda x: again.fit(x, y), RECORDS)
    if name != "components":
        check("y", lambda x: again.fit(RECORDS, x), y)
        check("scored", lambda x: model.score(FRAME, x), y)
        check("weights", lambda x: model.score(FRAME, y, sample_weight=x), np.ones(12))
    for method in ("predict", "decision_function", "predict_proba", "transform"):
        if hasattr(model, method):
            check(method, getattr(model, method), RECORDS)


READ_TOO = ["sample", "probabilities", "regret", "scores", "segment", "squared_error", "rotation_bias"]
NEEDS_MORE = ("regression", "classification", "plan", "components")  # tested by themselves


def test_no_release_quotes_its_data() -> None:
    for name, release in RELEASES.items():
        if not any(word in name for word in NEEDS_MORE):
            good = next(iter(release.pairs(release.mechanism).values()))[0]
            check(name, release.method(release.mechanism), good)
            for other in READ_TOO:
                call = getattr(release.mechanism, other, None)
                if callable(call):
                    options = {"clip": True} if "clip" in inspect.signature(call).parameters else {}
                    check(f"{name}.{other}", partial(call, **options), good)


def receivers() -> dict[str, tuple[Callable[[Any], object], Any]]:
    """Calls that receive data, besides releases and fits, with what each takes."""
    table = Channel([[0.75, 0.25], [0.25, 0.75]], space=md.MetricSpace.line([0.0, 1.0]))
    named = md.MetricSpace.line([0.0, 1.0], names=["a", "b"])
    report = channels.LinearReport(md.Workload.identity(2), ((3, 1), (1, 3)))
    sets = RELEASES["local histogram"].mechanism
    sphere = RELEASES["sphere, messages"].mechanism
    message = sphere.encode(np.zeros((2, 20)), seed=7)
    residues = ModularSum(3, 8)
    estimate = md.FrequencyEstimate(table)
    item = RELEASES["items of users"].mechanism
    sampled = RELEASES["sampled items of users"].mechanism
    tree = RELEASES["histogram of users"].mechanism
    several = RELEASES["linear query, several users"].mechanism
    quantizer, packed = RELEASES["optimal quantizer"].mechanism, RELEASES["integer table"].mechanism
    users = md.UserHistogram(LINE, md.EMDPrivacy(1.0), 3, 2).solve()
    mean = md.PrivateMean(0, 1, about=100)
    pure = mean.solve(md.PureDP(1.0))
    return {
        "result": (md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0).release, 3.0),
        "quantizer bias": (quantizer.bias, [0.1, 0.2]),
        "channel sample": (table.sample, [0, 1]),
        "channel apply": (table.apply, [0.5, 0.5]),
        "channel unbias": (table.unbias, [0.5, 0.5]),
        "clusters apply": (ClusteredResponse(CLUSTERS, 5.0).apply, np.full(8, 1 / 8)),
        "hadamard unbias": (HadamardResponse(3, 1.0).unbias, np.full(4, 1 / 4)),
        "named channel": (Channel([[0.75, 0.25], [0.25, 0.75]], space=named).release, ["a", "b"]),
        "report decode": (report.decode, [0, 1, 1]),
        "report counts": (report.decode_counts, [3, 4]),
        "sets decode": (sets.decode, sets.release([0, 1, 2])),
        "sets counts": (sets.decode_counts, sets.tally(sets.release([0, 1, 2]))),
        "frequencies": (estimate.fit, [0, 1, 1]),
        "frequencies of counts": (estimate.fit_counts, [3, 4]),
        "items sample": (item.sample, np.zeros((2, 3), int)),
        "items reduced": (sampled.sample, [[0, 1], [2]]),
        "tree counts": (lambda x: tree.release(x, sizes=3), [6, 0, 0, 0, 0, 0]),
        "tree sizes": (lambda x: tree.release([6, 0, 0, 0, 0, 0], sizes=x), [3, 3]),
        "query sizes": (lambda x: several.release([6, 0, 0, 0, 0, 0], sizes=x), [3, 3]),
        "indices": (LINE.indices, [0, 1]),
        "histogram": (LINE.histogram, [0, 1]),
        "distribution": (LINE.distribution, np.full(6, 1 / 6)),
        "nearest": (LINE.nearest, [[0.1], [0.2]]),
        "emd": (lambda x: md.emd(x, np.full(6, 1 / 6), LINE), np.full(6, 1 / 6)),
        "workload": (md.Workload.prefix_sums(3).apply, [1, 2, 3]),
        "private mean": (lambda x: mean.release(x, pure), [0.1, 0.2, 0.3]),
        "decode": (lambda x: sphere.decode(x, seed=7), message),
        "aggregate": (lambda x: sphere.aggregate(x, seed=7), [message, message]),
        "one vector": (lambda x: sphere.aggregate(x, seed=7, vectors=2), [message]),
        "codes": (lambda x: sphere.decoded(x, 7), [0, 1]),
        "squared error": (sphere.squared_error, np.zeros(20)),
        "masked": (lambda x: residues.masked(x, [1, 2, 3]), [1, 2, 3]),
        "mask": (lambda x: residues.masked([1, 2, 3], x), [1, 2, 3]),
        "total": (residues.total, [b"abc", b"abc"]),
        "centred": (residues.centred, [1, 2, 3]),
        "coded": (lambda x: sphere.codes(x, seed=7), np.zeros((2, 20))),
        "words": (lambda x: packed.draw([0.1, 0.2], x), np.ones(2, np.uint64)),
        "drawn": (lambda x: packed.draw(x, np.ones(2, np.uint64)), [0.1, 0.2]),
        "packed": (lambda x: packed.decode(x, seed=7), packed.encode([0.1, 0.2], seed=7)),
        "damaged": (lambda x: sphere.aggregate(x, seed=7, skip_damaged=True), [message, message]),
        "tally": (sets.tally, sets.release([0, 1, 2])),
        "users": (lambda x: users.design.fit(x, users), np.zeros((2, 3), int)),
        "users' sizes": (lambda x: users.design.fit([6, 0, 0, 0, 0, 0], users, sizes=x), [3, 3]),
        "truth": (estimate.fit([0, 1, 1]).emd, [0.5, 0.5]),
        "multisets": (lambda x: md.spaces.emd_multisets(x, [0, 1], LINE), [0, 1]),
        "numbers": (mean.numbers, [0.1, 0.2, 0.3]),
        "flower": (lambda x: flower_update(sphere, x), [np.zeros((2, 5)), np.zeros(10)]),
    }  # fmt: skip


def test_no_other_call_quotes_its_data() -> None:
    for name, (call, good) in receivers().items():
        check(name, call, good)


TASKS = {"visits": md.Count(), "ages": md.Histogram(3), "mean": md.Mean(0, 10, n=100), "sum": md.Sum(5.0)}
ANSWERS: dict[str, Any] = {"visits": 7, "ages": [1, 2, 3], "mean": (50.0, 10), "sum": 30.0}


@cache
def planned() -> md.Result:
    return md.Plan(TASKS, md.PureDP(1.0)).solve()


def asked(rng: np.random.Generator) -> Any:
    """Answers to tasks, of which one is doctored, or the keys are, or which are no mapping."""
    way, found = rng.integers(8), dict(ANSWERS)
    if way == 0:
        return doctored(rng, [1.0, 2.0])
    if way == 1:
        return Counter(["SECRET-8231", "visits", "visits"])
    if way == 2:
        return pd.DataFrame({"SECRET-8231": [8231.4375], **{name: [1] for name in TASKS}})
    if way == 3:
        return pd.Series({**ANSWERS, "SECRET-8231": 8231.4375})
    if way == 4:
        del found[[*TASKS][rng.integers(4)]]
        return found | {f"SECRET-{k}": 8231.4375 for k in range(rng.integers(3))}
    name = [*TASKS][rng.integers(4)]
    return found | {name: doctored(rng, found[name])}


def test_no_plan_quotes_its_answers() -> None:
    rng, mechanism = np.random.default_rng(3), planned().mechanism
    for _ in range(INPUTS):
        for said in messages(mechanism.release, asked(rng)):
            assert not MARK.search(said), said


def test_no_ledger_quotes_what_is_released(tmp_path: Path) -> None:
    ledger = md.Ledger(tmp_path / "ledger.jsonl", md.PureDP(30.0))
    noise = md.calibrate("laplace", privacy=md.PureDP(0.01), sensitivity=1.0)
    check("one number", lambda x: noise.release(x, ledger=ledger), 3.0)
    check("by the ledger", lambda x: ledger.release(noise, x), 3.0)
    check("of disjoint people", lambda x: noise.release(x, ledger=ledger, disjoint=True), [3.0, 4.0])
    assert not re.search(r"SECRET|8231\.", (tmp_path / "ledger.jsonl").read_text(encoding="utf-8"))
    rng = np.random.default_rng(4)
    for _ in range(INPUTS):
        for said in messages(lambda x: planned().release(x, ledger=ledger), asked(rng)):
            assert not MARK.search(said), said


def test_the_shell_quotes_no_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_checked", lambda *_: (planned(), [], [], []))
    rng, answers = np.random.default_rng(5), tmp_path / "answers.csv"
    cells = ["SECRET-8231", "8231.4375", "8231", '"', "", "1,2", "nan", "8231e999", "\0", "visits", "4"]
    for _ in range(INPUTS):
        rows = [[*TASKS], ["7", "1", "50", "30"], ["", "2", "10", ""], ["", "3", "", ""]]
        for _ in range(rng.integers(1, 3)):
            rows[rng.integers(4)][rng.integers(4)] = cells[rng.integers(len(cells))]
        text = "\n".join(",".join(row) for row in rows).encode()
        answers.write_bytes(text + b"\xffSECRET" * int(rng.random() < 0.1))
        for said in messages(lambda path: commands.release(tmp_path / "plan.json", path), answers):
            assert not MARK.search(said.replace(str(tmp_path), "")), said
