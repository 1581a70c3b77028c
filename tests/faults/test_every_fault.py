"""Faults that were once reported: an example of each, and others of its kind; the numbers are those of the report.

`CASES` are printed by `python -m tests.promises`; what is long, or needs a table of its own, is a test below them.
"""

import hashlib
import json
import math
import os
import pickle
import re
import subprocess
import sys
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cheap
import mpmath
import numpy as np
import pandas as pd
import pytest
from campaign import files, trees
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from mechdesign_studies import pictures
from mechdesign_studies.erratum import Errata
from mechdesign_studies.noise.allocation import figure2
from mechdesign_studies.noise.errata import allocation
from packaging.requirements import Requirement
from scipy import stats

import mechdesign as md
from mechdesign.accounting import gaussian_mu, losses
from mechdesign.accounting.interval import NoiseTerm, delta_interval, epsilon_bound
from mechdesign.accounting.profile import privacy_profile
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.learning import PrivateLinearRegression, PrivateLogisticRegression, PrivatePCA
from mechdesign.shell.studykit import get_study, run_study
from mechdesign.solvers.linear_program import LinearProgram
from mechdesign.typing import Status
from mechdesign.verifier import reading, verify
from tests.evidence import test_widened

ROOT = Path(__file__).parents[2]
ONE, WEAK = md.PureDP(1.0), md.ApproximateDP(1.0, 1e-6)
CASES: dict[str, Callable[[], None]] = {}
LONG = [
    "A8 inputs",
    "A8 outputs",
    "B21 patterns",
    "B21 others",
    "B12 46 of 6 kinds",
    "B12 a thousand",
    "B12 both",
    "B13 million rounds",
    "B20 channel",
    "C22 changes five",
    "C22 changes ten",
    "B20 count",
    "C23 descent",
]
"""Above two seconds."""


def fault(number: str, **cases: Any) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Cases of a promise: what each is given, by name."""

    def add(promise: Callable[[Any], None]) -> Callable[[Any], None]:
        CASES.update({f"{number} {name}": partial(promise, given) for name, given in cases.items()})
        return promise

    return add


def noise(family: Any, privacy: Any, sensitivity: Any = 1.0, **options: Any) -> md.Result:
    return md.calibrate(family, privacy=privacy, sensitivity=sensitivity, **options)


def refused(words: str, call: Callable[..., Any]) -> None:
    """In a sentence of the package, which quotes none of the numbers that are marked."""
    with pytest.raises(md.DesignError, match=words) as caught:
        call()
    print(f"refused: {caught.value}")
    assert "8231" not in str(caught.value)


def proved(result: md.Result) -> md.Result:
    """Verified without the package."""
    assert all(holds for *_, holds in verify.verify(dumps(result)).rows)
    return result


# -- A: privacy and truth ------------------------------------------------------------------------------------

X = np.random.default_rng(0).uniform(-1, 1, (500, 1))
SAMPLES = np.random.default_rng(0).normal(0.5, 0.1, 1000)
ONE_LARGE = [30.0, *[0.1] * 20]
SKEWED = np.exp(np.random.default_rng(1).normal(0, 0.5, 50))
ASKED = md.Plan({"a": md.Count(), "b": md.Sum(5.0)}, ONE)


def fitted(target: Any) -> Any:
    """Of one target among 500."""
    y = X[:, 0].astype(object)
    y[0] = target
    model = PrivateLinearRegression(
        privacy=md.ApproximateDP(0.5, 1e-6), bounds=(-1, 1), target_bounds=(-1, 1), random_state=0
    )
    return model.fit(X, y)


def allocated(kind: str, sensitivities: Any, **options: Any) -> float:
    return md.NoiseAllocation(kind, sensitivities, WEAK).solve(**options).value


def ledger(*budget: Any) -> md.Ledger:
    return md.Ledger("ledger.jsonl", *(budget or (md.ApproximateDP(100.0, 0.5),)))


@fault("A1 label", array=np.array, list=list, series=pd.Series)
def _(hold: Any) -> None:
    """One that is missing, or none of the classes: "Y" for "y" gave pure noise in silence."""
    model = PrivateLogisticRegression(privacy=WEAK, bounds=(-1, 1), classes=["n", "y"])
    for bad in (None, np.nan, pd.NA, 1, "Y", np.ma.masked, 1j):
        objects = np.empty(8, dtype=object)
        objects[:] = ["n", "y", "n", "y", "n", "n", "n", bad]
        refused("^y", lambda given=objects: model.fit(X[:8], given if hold is np.array else hold(given)))


def released(result: md.Result, answers: Any = (3,) * 2000) -> Any:
    return result.release(answers, ledger=ledger())


@fault("A3", disjoint=7, alone=1)
def _(count: int) -> None:
    """Of people who are in one answer only, many are one entry, which says how many."""
    result, kept = noise("laplace", md.PureDP(0.5), dimension=2), ledger(ONE)
    assert result.release(np.zeros((count, 2)), ledger=kept, disjoint=True).answer.shape == (count, 2)
    assert kept.left().epsilon == pytest.approx(0.5)
    assert kept.to_frame()[["answers", "disjoint"]].to_numpy().tolist() == [[count, True]]
    refused("must be one answer", lambda: result.release(np.zeros((0, 2)), ledger=kept, disjoint=True))
    refused("is said to a ledger", lambda: result.release(np.zeros((count, 2)), disjoint=True))


def half(*mechanisms: str, **also: md.Result) -> Any:
    """Of a question of half the sensitivity."""
    asked = md.NumericQuery(sensitivity=0.5)
    return md.compare(asked, ONE, mechanisms=[*mechanisms], also=also, progress=False)


@fault("A4", doctored=("sensitivity", 0.5), sampled=("sampling_rate", 0.5), absolute=("loss", "absolute"))
def _(made: tuple[str, Any]) -> None:
    """A question that was made smaller is refused by both checkers."""
    found = md.compare(md.NumericQuery(), ONE, mechanisms=["laplace"], progress=False)
    payload = json.loads(dumps(found))["payload"]
    payload["fields"]["question"]["fields"][made[0]] = made[1]
    text = cheap.sealed(payload)
    assert not all(claim.holds for claim in loads(text).agreements())
    assert not all(holds for *_, holds in verify.verify(text).rows)


def charged(design: Any) -> None:
    """In a ledger that was opened for the neighbours of the other kind."""
    kept, own = ledger(), design.neighbours
    other = md.Sensitivity(linf=1, neighbours={"add-remove": "replace", "replace": "add-remove"}[own])
    kept.charge(noise("gaussian", md.ZeroConcentratedDP(0.001), other))
    kept.charge(design.solve())


@fault("A8", inputs="solve", outputs="run")
def _(method: str) -> None:
    """A solver's failure is a note, in words, and no bound."""

    def crashed(*_: Any) -> Any:
        raise md.SolverError("the library crashed", solver="highs", status="crashed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinearProgram, method, crashed)
        result = md.MetricQuantizer(cheap.BINS, md.MetricDP(2.0), cheap.UNIFORM).solve(gap=0.05)
    assert any("highs failed" in note and "the library crashed" in note for note in result.notes)
    assert "the library crashed" in " ".join(str(result).split())


@fault("A9", exponentials=("package", "bounded-count"), moments=("verifier", "quantizer"))
def _(given: tuple[str, str]) -> None:
    """From widened data nothing more is proved."""
    test_widened.test_widened_data_prove_no_more("exponentials", *given, choices=1)


# -- B: wrong numbers, poor defaults -------------------------------------------------------------------------

MENU = {"c1": md.Count(), "c2": md.Count(), "total": md.Sum(1000.0)}
KINDS = [md.Count(), md.Histogram(3), md.Histogram(12), md.Mean(0, 100, n=500), md.Sum(10.0), md.Sum(1000.0)]
MANY = {f"task {k}": KINDS[k % 6] for k in range(46)}
COUNTS = {f"count {k}": md.Count() for k in range(1000)}


@fault("B10", euros=MENU, cents=MENU | {"total": md.Sum(100_000.0)})
def _(tasks: dict[str, Any]) -> None:
    table = md.Plan(tasks, WEAK).solve().to_frame().set_index("task")
    assert table["standard_deviation"][["c1", "c2"]].tolist() == pytest.approx([4.2209] * 2, rel=1e-3)
    assert table["share"]["total"] == pytest.approx(1 / 3, abs=0.01)


def of_even_split(epsilon: float) -> float:
    """The largest standard deviation of a task over that under an even split."""
    result = md.Plan(MENU | {"bins": md.Histogram(40), "age": md.Mean(0, 1, n=9)}, md.PureDP(epsilon)).solve()
    weights = result.design.to_fields()["weights"]
    return max(weights[name] * error for name, error in result.mechanism.squared_errors().items()) ** 0.5


def relative() -> dict[str, float]:
    """Squared errors where 5% of 200 are wanted, and of a sum 40."""
    asked: Any = {"relative": {"visits": (0.05, 200)}, "targets": {"spent": 40.0}}
    result = md.Plan({"visits": md.Count(), "spent": md.Sum(5.0)}, ONE, **asked).solve()
    return result.mechanism.squared_errors()


def of_two_sums(epsilon: float) -> float:
    """Variance of staircase noise on sums to 1 and 5 at the best split of ε, in 40 digits."""
    with mpmath.workdps(40):

        def variance(top: int, share: Any) -> Any:
            b, third = mpmath.exp(-share), mpmath.mpf(1) / 3
            return top**2 * (2 ** (-2 * third) * b ** (2 * third) * (1 + b) ** (2 * third) + b) / (1 - b) ** 2

        def cost(share: Any) -> Any:
            return variance(1, share) + variance(5, epsilon - share)

        low, high = mpmath.mpf(epsilon) / 1000, mpmath.mpf(epsilon) * 999 / 1000
        for _ in range(120):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, right) if cost(left) < cost(right) else (left, high)
        return float(cost(low))


def two_sums(epsilon: float) -> float:
    result = md.Plan({"a": md.Sum(1.0), "b": md.Sum(5.0)}, md.PureDP(epsilon), {"a": 1.0, "b": 1.0}).solve()
    assert result.gap < 1e-9
    return result.value


def even(result: md.Result) -> float:
    """The error of an even split."""
    return result.alternatives().set_index("mechanism")["error"]["even split"]


def readme() -> float:
    """The value of README's plan over its bound."""
    tasks = {"visits": md.Histogram(50), "age": md.Mean(0, 100, n=10_000), "spent": md.Sum(5.0)}
    given = {"visits": 1400**-2, "age": 50**-2, "spent": 12_500**-2}
    result = md.Plan(tasks, WEAK, given, rounds=12).solve()
    return result.value / result.lower_bound


def hasty(count: int) -> float:
    """The value of unequal bins with unequal weights, in a millisecond, over that of an even split."""
    names = [*map(str, range(1, count + 1))]
    tasks, given = {k: md.Histogram(2 + int(k)) for k in names}, {k: float(k) for k in names}
    result = md.Plan(tasks, WEAK, given).solve(time_limit=1e-3)
    return result.value / even(result)


def one_count(epsilon: float) -> md.Result:
    return md.Plan({"c": md.Count()}, md.PureDP(epsilon), {"c": 1.0}).solve()


@fault("B12", **{"46 of 6 kinds": MANY, "a thousand": COUNTS, "both": MANY | COUNTS})
def _(tasks: dict[str, Any]) -> None:
    """Like tasks are one: solved, printed, verified so."""
    result = proved(md.Plan(tasks, WEAK).solve())
    print(text := str(result))
    assert len(text.splitlines()) < 30 and len(result.to_frame()) >= len(tasks)
    assert result.value <= len(tasks) * (1 + 1e-9) and result.value <= 2 * result.lower_bound
    result.report("page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert all(name in page for name in tasks)


def sampled(family: str, epsilon: float, delta: float, change: float, rate: float) -> float:
    result = proved(noise(family, md.ApproximateDP(epsilon, delta), change, sampling_rate=rate))
    assert result.certificate.verify()
    return result.value**0.5


def one_round(epsilon: float, delta: float, rate: float) -> float:
    """σ of sampled Gaussian noise in closed form."""
    return 1 / gaussian_mu(math.log(rate + math.expm1(epsilon)) - math.log(rate), delta / rate)


def rounds(
    epsilon: float, rate: float = 1e-3, sigma: float = 0.8, **options: Any
) -> md.accounting.DeltaInterval:
    term = NoiseTerm(stats.norm(scale=sigma), 1.0)
    return delta_interval(term, epsilon, rounds=10_000, sampling_rate=rate, **options)


def advantage() -> float:
    """What of a tenth is used, near ε = 0 in many rounds that lose little."""
    law = noise("gaussian", md.MembershipAdvantage(0.1), rounds=10_000, sampling_rate=1e-3).mechanism
    spent = law.delta_interval(0.0, width=2e-3)
    assert spent.upper <= 0.1
    return spent.lower


def joint() -> float:
    """The factor for two halves of the rounds of one mechanism."""
    half = md.AdditiveNoise(stats.norm(), 1.0, rounds=500, sampling_rate=0.01)
    return md.calibrate(terms=[half, half], privacy=WEAK).value


def tiny(rate: float) -> float:
    """δ at ε of 1.1e-18, over 1.1e-18: few records, many steps; the interval that is asked for is as narrow."""
    term = NoiseTerm(stats.norm(scale=4.0), 1.0)
    epsilon = epsilon_bound(term, 1.1e-18, rounds=10_000, sampling_rate=rate)
    found = rounds(epsilon, rate, 4.0, width=1e-3)
    assert found.upper <= found.lower * (1 + 1e-3)
    return found.upper / 1.1e-18


def deviation(epsilon: float) -> float:
    return md.accuracy(noise("discrete_laplace", md.PureDP(epsilon))).standard_deviation * epsilon


@fault("B14", **{"above ten million": 10**7 + 1, "half": 2**40, "whole": 2**53})
def _(sensitivity: int) -> None:
    """In units of the sensitivity it is Laplace noise; enclosed, verified alone, printed without a warning."""
    for privacy in (ONE, md.PureDP(1e-3), md.ApproximateDP(0.1, 1e-6)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = proved(noise("discrete_laplace", privacy, sensitivity))
            assert result.value == pytest.approx(noise("laplace", privacy, sensitivity).value, rel=1e-5)
            assert md.accuracy(result).standard_deviation ** 2 == pytest.approx(result.value, rel=1e-5)
            asked = md.NumericQuery(sensitivity=sensitivity, integer=True)
            table = md.compare(asked, privacy, mechanisms=["discrete_laplace"]).table
        assert str(result) and result.certificate.verify()
        assert table["error"][0] == pytest.approx(result.value, rel=1e-5)


@fault("B15 mean", most=600_000_000, once=2**26 + 1, more=10**12)
def _(n: int) -> None:
    """Centred sums are exact doubles, of everybody at an end of the range too."""
    result = proved(md.Plan({"age": md.Mean(0, 100, n=n)}, ONE).solve())
    assert result.mechanism.release({"age": [100.0 * n, float(n)]})["age"] == pytest.approx(100.0, abs=1e-3)


@fault("B15 reports", small=1e-6, one=1.0, large=300.0)
def _(epsilon: float) -> None:
    """k-ary response and subset selection of 5,000 categories need no table."""
    asked = md.LocalWorkload(md.Workload.identity(5000), md.PureDP(epsilon))
    best, simple = map(proved, (asked.solve(), asked.answered_by("k-ary response")))
    assert best.gap < 1e-9 and best.value <= simple.value * (1 + 1e-12)
    assert best.certificate.verify() and simple.certificate.verify()


def reports(categories: int, *mechanisms: str) -> int:
    asked = md.CategoryReport(categories=categories)
    return len(md.compare(asked, ONE, mechanisms=[*mechanisms] or None, progress=False).table)


@fault("B17", quantizer="optimal-quantizer", metric="metric-quantizer", noise="optimal-noise")
def _(name: str) -> None:
    """Before and after use, result and mechanism."""
    result = cheap.solved(name)
    for held in (result, result.mechanism):
        pickle.loads(pickle.dumps(held)).release(0.3)
        held.release(0.3)
        pickle.loads(pickle.dumps(held)).release(0.3)


def weights(prior: Any) -> Any:
    """Of the last of three points."""
    space = md.MetricSpace.line([0.0, 1.0, 3.0], names=["a", "b", "c"])
    return md.MetricChannel(space, 1.0, prior=prior).weights[2]


@fault(
    "B19",
    flint="python-flint==0.6.0",
    highs="highspy==1.12.0",
    broken="highspy==1.16.0",
    typer="typer==0.12.0",
)
def _(pinned: str) -> None:
    wrong = Requirement(pinned)
    [stated] = [
        found
        for line in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "dependencies"
        ]
        if (found := Requirement(line)).name == wrong.name
    ]
    print(stated)
    assert not stated.specifier.contains(str(wrong.specifier)[2:])


@fault(
    "B20",
    count=(md.BoundedCount(400, WEAK, "squared"), [], 3),
    channel=(md.MetricChannel(md.MetricSpace.grid(13, 25), alpha=0.7), ["highs"], 0.01),
    mixed=(md.NoiseAllocation("mixed", np.repeat(SKEWED, 200), WEAK), [], 0.1),
)
def _(asked: tuple[Any, list[str], float]) -> None:
    """What is asked for too soon is answered all the same."""
    design, solver, seconds = asked
    begun = time.process_time()
    result = design.solve(*solver, time_limit=seconds)
    assert result.status is Status.LIMIT and time.process_time() < begun + 15
    assert result.certificate.verify()


FIELDS = ("fields", "design", "fields")


@fault(
    "B21",
    unit=("user-histogram", (*FIELDS, "space", "fields", "unit"), "m"),
    reached=("lattice-problem", (*FIELDS, "sensitivity"), 1.0),
    points=("lattice-problem", (*FIELDS, "outputs", "$tuple", 0), -77.0),
    gap=("optimal-quantizer", ("fields", "asked_gap"), -1e-9),
    consumed=("plan", ("fields", "proofs", "$tuple", 0, "fields", "given", "fields", "upper"), 9.0),
    none=("optimal-noise-many", (*FIELDS, "l0"), 0),
    bits=("mvu", (*FIELDS, "input_bits"), 0),
    starts=("bin-search", (*FIELDS, "bins", "fields", "starts"), 0),
    beta=("beta", (*FIELDS, "prior", "fields", "law", "kwds"), {"$items": [["scale", -1.0]]}),
    uniform=("optm", (*FIELDS, "prior", "fields", "law", "kwds"), {"$items": [["scale", -1.0]]}),
)
def _(altered: tuple[str, tuple[Any, ...], Any]) -> None:
    """A file with another leaf is refused by both readers."""
    name, path, value = altered
    payload = files.payload(name)
    assert trees.at(payload, path) != value
    payload = trees.put(payload, path, value)
    assert not files.package_accepts(payload) and not files.alone_accepts(payload)


def patterns(apart: int, times: int) -> float:
    """The gap of noise for people who come so often, so far apart."""
    asked = md.noise.Participation(times, apart=apart)
    return md.MatrixMechanism(md.Workload.prefix_sums(64), WEAK, participation=asked).solve(time_limit=20).gap


def huber(epsilon: float, delta: float) -> float:
    return noise("flipped_huber", md.ApproximateDP(epsilon, delta)).value


def sufficient(alpha: float, gamma: float) -> float:
    """δ of a published law, over what Theorem 8 says of it."""
    law = md.noise.flipped_huber(alpha=alpha, gamma=gamma)
    return privacy_profile(law, 1.0, 1.0) / md.noise.flipped_huber_sufficient(law, 1.0, dimension=1)


# -- C: the papers; D: words ---------------------------------------------------------------------------------


@fault("C22 changes", five=5, ten=10)
def _(dimension: int) -> None:
    """Noise in the norm of all 1,770 differences of sixty answers, which was refused."""
    answers = np.random.default_rng(7).normal(size=(60, dimension))
    first, second = np.triu_indices(60, 1)
    changes = answers[first] - answers[second]
    result = md.noise.KNorm(dimension, ONE, changes).solve()
    assert result.mechanism.planes is not None and result.certificate.verify()
    assert (
        result.value
        < md.noise.KNorm(dimension, ONE, md.Sensitivity.of_list(changes), norm=2).solve().value / 2
    )


@fault("C23 data", learning="california_housing.csv.gz", images="cifar10_train_2.bin.gz")
def _(name: str) -> None:
    """The page names each file with its checksum; where the files are, these are theirs."""
    text = (ROOT / "docs" / "reference" / "data.rst").read_text(encoding="utf-8")
    sums = {file: digest for digest, file in re.findall(r"^ +([0-9a-f]{64})  (\S+)$", text, re.MULTILINE)}
    assert set(sums) == set(re.findall(r"\* - ``(\S+)``", text)) and name in sums
    if os.environ.get("MECHDESIGN_DATA"):
        found = Path(os.environ["MECHDESIGN_DATA"], name).read_bytes()
        assert hashlib.sha256(found).hexdigest() == sums[name]


@fault("C23", descent="coordinate-descent")
def _(name: str) -> None:
    """Without its data a study concludes nothing from them."""
    text = (run_study(get_study(name), Path()) / "README.md").read_text(encoding="utf-8")
    assert "Not computed: what needs" in text and "as computed above" not in text


def sizes(count: int) -> list[float]:
    """Of the hollow markers of so many curves that coincide: each lies within the last."""
    axis = Figure().add_subplot()
    pictures.nested(axis, pd.Series([0.1, 1.0]), pd.DataFrame({str(k): [1.0, 2.0] for k in range(count)}))
    assert {line.get_markerfacecolor() for line in axis.lines} == {"none"}
    assert len({line.get_marker() for line in axis.lines}) == count == len(axis.lines)
    return [line.get_markersize() for line in axis.lines]


def barred(points: int, count: int = 4) -> int:
    """Places of error bars, less the bars: 0 if none lies over another. None reaches 0."""
    axis = Figure().add_subplot()
    x = np.arange(points, dtype=float)
    pictures.with_bars(axis, x, {str(k): (x + 1, x + 2) for k in range(count)})
    bars = [bar for found in axis.containers for bar in found[2][0].get_segments()]
    assert min(bar[:, 1].min() for bar in bars) > 0
    return len({bar[0, 0] for bar in bars}) - len(bars)


def legend() -> float:
    """Where the legend of the allocation papers' Figure 2 begins, as a share of the axis' width."""
    axes: list[Any] = []
    kept = {"figure": lambda _, figure, **__: axes.extend(figure.axes), "table": lambda *_, **__: None}
    figure2(SimpleNamespace(**kept))  # type: ignore[arg-type]
    return float(axes[0].get_legend().get_bbox_to_anchor().transformed(axes[0].transAxes.inverted()).x0)


def colours() -> float:
    """The least decibels of Figure 3(c) of flipped Huber noise."""
    table = pd.read_csv(ROOT / "results" / "flipped-huber" / "figure3bc.csv")
    return float(table["(c): over staircase, dB"].min())


def reversed_order() -> Any:
    """Δ₁ of twenty numbers where Δ_q ≤ Δ_r is printed, as the table of errata computes it."""
    errata = Errata()
    allocation(errata)
    one, two, largest = (row["found"] for row in errata.values[:3])
    assert one > two > largest == 1.0  # type: ignore[operator]
    return one


class Raises:
    """Whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def optm(**options: Any) -> md.Result:
    return md.OPTM([-3, -0.5, 0.5, 3], ONE, stats.uniform(-1, 2), **options).solve()


def gap(result: md.Result) -> float:
    """What is stated as the gap, and printed to two digits, over (v − b)/v."""
    assert float(str(result).partition(", gap ")[2].partition("%")[0]) / 100 == pytest.approx(
        result.gap, rel=0.05
    )
    return result.gap * result.value / (result.value - result.lower_bound)


@fault("D24 bounds", squared="squared", absolute="absolute", other=lambda t: np.abs(t) ** 1.5)
def _(loss: Any) -> None:
    """What is called a bound of the value is above it; of a callable it is the absolute loss's, which is another number."""
    result = optm(loss=loss)
    assert "normalisation" not in str(result) and "tightest privacy constraint" in str(result)
    (note,) = (note for note in result.notes if "Lemma 1" in note)
    print(note)
    if callable(loss):
        assert "bound of the absolute loss, while the value is" in note
    else:
        assert "bound of the value" in note and float(note.split()[-1]) >= result.value


@fault("D25", front="docs/index.rst", deploy="docs/guides/deploy.rst", readme="README.md")
def _(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert "proves itself" not in text and "checks itself" not in text


@fault("D26 help", archive="mechdesign.verifier.archive", verify="mechdesign.verifier")
def _(module: str) -> None:
    run = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout and not list(Path().iterdir())


def table(text: str) -> str:
    Path("table.csv").write_text(text)
    return "table.csv"


def audited(text: str, **options: Any) -> md.Result:
    return md.audit_table(table(text), privacy=ONE, **options)


NEAR = {"input_range": (-1, 1)}
RIGHT: dict[str, tuple[Callable[[], Any], float]] = {
    "A4 menu": (lambda: half("staircase").bounds["independent noise of one law"], 0.31467),
    "A6 stated": (lambda: md.OPTM([-4, 0.2, 0.6, 4], ONE, SAMPLES, **NEAR).solve().value, 1.6343),
    "A6 range": (lambda: md.OPTM([-4, -0.6, 0.6, 4], ONE, SAMPLES, **NEAR).solve().mechanism.input_range[1], 1.0),
    "B10 reserve": (lambda: md.Plan(MENU, ONE, reserve=0.1).solve().design.privacy.epsilon, 0.9),
    "B10 even": (lambda: even(md.Plan(MENU, WEAK).solve()), 3.0),
    "B10 relative": (lambda: relative()["visits"] ** 0.5, 10.0),
    "B11 count": (lambda: one_count(20.0).value ** 0.5, 6.42e-5),
    "B11 bins": (lambda: (md.Plan({"h": md.Histogram(5)}, md.PureDP(20.0), {"h": 1.0}).solve().value / 5) ** 0.5, 6.42e-5),
    "B11 below": (lambda: one_count(19.999999).lower_bound ** 0.5, 6.42e-5),
    **{f"B11 alone at {e}": (lambda e=e: md.Plan({"c": md.Count()}, md.PureDP(e)).solve().value, 1.0) for e in (105, 110, 112, 113, 130)},
    **{f"B11 at {e}": (partial(two_sums, e), of_two_sums(e)) for e in (50, 60, 80, 200, 600, 650, 708)},
    "B13 large": (lambda: sampled("gaussian", 1000, 1e-5, 1.0, 0.1), 0.024254598),
    "B13 narrow": (lambda: sampled("gaussian", 3000, 1e-5, 1.0, 0.1), 0.0135369),
    "B13 round": (lambda: sampled("gaussian", 1.0, 1e-5, 1.0, 0.1), one_round(1.0, 1e-5, 0.1)),
    "B13 whole": (lambda: sampled("discrete_gaussian", 1.0, 0.27122238, 3.0, 0.4), 0.993),
    "B13 end": (lambda: rounds(0.0, width=1e-3).upper, 0.07678),
    "B13 terms": (joint, noise("gaussian", WEAK, rounds=1000, sampling_rate=0.01).value ** 0.5),
    "B13 advantage": (advantage, 0.0997),
    "B14 tiny": (lambda: deviation(1e-15), 2**0.5),
    "B14 small": (lambda: deviation(1e-12), 2**0.5),
    "B15 normal": (lambda: noise("discrete_gaussian", md.ZeroConcentratedDP(0.5), 60_000).value ** 0.5, 60_000),
    "B15 response": (lambda: reports(10_000, "k-ary response"), 1),
    "B15 report": (lambda: reports(20_000), 6),
    "B16 million": (lambda: 1 + md.VectorQuantizer(1_000_000, md.PureDP(8.0), bits=16).solve().gap, 1.00054),
    "B16 thousands": (lambda: md.VectorQuantizer(20_000, md.PureDP(8.0), bits=8).solve().value, 2938.68),
    "B18 series": (lambda: weights(pd.Series({"c": 0.5, "a": 0.25, "b": 0.25})), 0.5),
    "B18 names": (lambda: weights({"b": 0.25, "c": 0.5, "a": 0.25}), 0.5),
    "C22 small": (lambda: huber(0.03, 1e-3), 1344.5),
    "C22 middle": (lambda: huber(0.3, 0.01), 14.026),
    "C22 large": (lambda: huber(1.0, 0.03), 1.431),
    "C22 never less": (lambda: huber(0.1, 0.2), noise("gaussian", md.ApproximateDP(0.1, 0.2)).value),
    "C22 nor here": (lambda: huber(0.5, 0.3), 0.749729),
    "C22 truncated": (lambda: noise("truncated_laplace", md.ApproximateDP(0.3, 0.01)).value, 13.110),
    "C22 optimum": (lambda: md.OptimalNoise(md.ApproximateDP(0.3, 0.01), loss="squared").solve().lower_bound, 13.0016),
    "C22 reversed": (reversed_order, 20.0),
    "C22 one-hot": (lambda: md.CorrelatedGaussian(np.eye(4), WEAK).solve().value, 71.3916),
    "C22 decoupled": (lambda: md.NoiseAllocation("gaussian", np.ones(4), WEAK).solve().value, 285.5666),
    "C22 five": (lambda: md.noise.KNorm(5, ONE).solve().value, 14.0),
    "C23 curves": (lambda: -float(np.diff(sizes(6)).max()), 2.2),
    "C23 few curves": (lambda: -float(np.diff(sizes(3)).max()), 2.2),
    "C23 bars": (lambda: barred(6), 0),
    "C23 many bars": (lambda: barred(60), 0),
    "C23 legend": (legend, 1.0),
    "C23 colours": (colours, -18.69),
    "D26 skipped": (lambda: audited("by hand\n\nx,-2,2\n-1,73%,27%\n1,27%,73%\n", skip=2, percent=True).epsilon, math.log(73 / 27)),
    "D26 index": (lambda: audited("row,x,-2,2\na,-1,.73,.27\nb,1,.27,.73\n", index="x").epsilon, math.log(73 / 27)),
    "D26 bounds": (lambda: PrivatePCA(privacy=WEAK, bounds=1.0).bounds, 1.0),
    "D24 gap": (lambda: gap(optm()), 1.0),
    "D24 squared": (lambda: gap(optm(loss="squared")), 1.0),
}  # fmt: skip
AT_MOST: dict[str, tuple[Callable[[], Any], float]] = {
    "A1 sound": (lambda: abs(fitted(X[0, 0]).coef_[0] - 1), 1.0),
    "A7 skewed": (lambda: allocated("mixed", SKEWED, time_limit=1e-3), 51_989.3),
    "A7 one large": (lambda: allocated("mixed", ONE_LARGE, time_limit=1e-3), allocated("laplace", ONE_LARGE) * (1 + 1e-9)),
    "B10 split": (lambda: of_even_split(12.0), 1.42),
    "B10 split at twenty": (lambda: of_even_split(20.0), 1.42),
    "B11 overflow": (lambda: one_count(708.0).value, 1e-49),
    "B12 README": (readme, 1.1 * (1 + 1e-9)),
    "B20 different": (lambda: allocated("mixed", np.geomspace(0.1, 5, 10_000), time_limit=3), allocated("gaussian", np.geomspace(0.1, 5, 10_000)) * (1 + 1e-9)),
    "B20 weights": (lambda: hasty(5), 1 + 1e-9),
    "B20 more weights": (lambda: hasty(60), 1 + 1e-9),
    "B13 few records": (lambda: rounds(2.0, 3.3e-4, 4.0).upper, 1.1e-18),
    "B13 fewer records": (lambda: tiny(3.3e-4), 1.0),
    "B13 coarse": (lambda: rounds(0.0, width=1e-2).upper, 0.07678 * 1.01),
    "B13 million rounds": (lambda: epsilon_bound(NoiseTerm(stats.norm(), 1.0), 1e-9, rounds=10**6, sampling_rate=1e-5), 0.0652),
    "B20 bins": (lambda: md.Plan({f"h{k}": md.Histogram(3 + k) for k in range(20)}, WEAK).solve(time_limit=3).value, 20 * (1 + 1e-9)),
    "B21 patterns": (lambda: patterns(16, 4), 0.032),
    "B21 others": (lambda: patterns(20, 3), 0.032),
    "C22 sufficient": (lambda: sufficient(1.0, 3.0), 1.0),
    "C22 Laplace-like": (lambda: sufficient(9.0, 5.0), 1.0),
    "C22 own shapes": (lambda: md.NoiseAllocation("flipped_huber", [1.0, 1e-3], md.ApproximateDP(0.03, 1e-3)).solve().value, 1946.4),
}  # fmt: skip
REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    **{f"A1 {bad}": ("^y should be", partial(fitted, bad)) for bad in (None, math.inf, pd.NaT, "8231", 8231j)},
    "A2 list": ("must be a mapping", lambda: ASKED.solve().mechanism.release([8231.4, 8231.5])),
    "A2 series": ("must be a mapping", lambda: ASKED.solve().mechanism.release(pd.Series([8231.4], ["8231"]))),
    "A2 records": (r"\['a', 'b'\], and 1 answer", lambda: ASKED.solve().mechanism.release(Counter(["8231", "8231"]))),
    "A3 laplace": ("must be one answer", lambda: released(noise("laplace", ONE))),
    "A3 whole": ("must be one answer", lambda: released(noise("discrete_laplace", ONE))),
    "A3 gaussian": ("must be one answer", lambda: released(noise("gaussian", WEAK))),
    "A3 optimal": ("must be one answer", lambda: released(md.OptimalNoise(ONE).solve())),
    "A3 count": ("must be one answer", lambda: released(md.BoundedCount(6, ONE).solve())),
    "A5 matrix": ("and this result by 'add-remove'", lambda: charged(md.MatrixMechanism(md.Workload.prefix_sums(4), WEAK))),
    "A5 correlated": ("and this result by 'add-remove'", lambda: charged(md.CorrelatedGaussian([[1, 0], [1, 1]], WEAK))),
    "A5 count": ("and this result by 'add-remove'", lambda: charged(md.BoundedCount(6, ONE))),
    "A5 changes": ("and this result by 'add-remove'", lambda: charged(md.noise.KNorm(2, ONE, [[1, 0], [1, 1]]))),
    "A5 replaced": ("and this result by 'replace'", lambda: charged(md.BoundedCount(6, ONE, neighbours="replace"))),
    "A6 optm": ("input_range", lambda: md.OPTM([-4, 0.2, 0.6, 4], ONE, SAMPLES)),
    "A6 optimal": ("input_range", lambda: md.OptimalQuantizer([-4, 0.2, 0.6, 4], ONE, SAMPLES)),
    "A6 report": ("input_range", lambda: md.LocalReport(2, prior=SAMPLES)),
    "B10 exhausted": ("reserve= keeps a share", lambda: [ledger(ONE).charge(ASKED.solve()) for _ in "12"]),
    "B15 range": ("by 1e-100 to 1e100", lambda: md.Mean(0, 1e308, n=5)),
    "B15 whole range": ("by 1e-100 to 1e100", lambda: md.Mean(-1e308, 1e308, n=5)),
    "B15 narrow range": ("by 1e-100 to 1e100", lambda: md.Mean(0.0, 1e-200, n=5)),
    "B15 no range": ("by 1e-100 to 1e100", lambda: md.Mean(3.0, 3.0, n=5)),
    "B15 covariances": ("4096 counts where covariances", lambda: md.Workload.prefix_sums(5000).gram()),
    "B15 roots": ("4096 counts where covariances", lambda: md.Workload.prefix_sums(5000).root),
    "B15 tables": ("at most 1000000", lambda: md.Workload.marginals((1001, 1000), order=2)),
    "B18 other names": ("by that name", lambda: weights(pd.Series({"d": 0.5, "a": 0.25, "b": 0.25}))),
    "B20 points": ("1001 items.*at most 1000", lambda: md.MetricChannel(md.MetricSpace.line(range(1001)), 1).solve()),
    "B20 outputs": ("4096 outputs.*at most 1025", lambda: md.OptimalQuantizer(np.linspace(-3, 3, 4096), ONE, cheap.UNIFORM)),
    "B20 alphabet": ("1025", lambda: md.Alphabet(3.0, 6 / 1025)),
    "B20 labels": ("at most 1000000 labels", lambda: md.Table(range(10**12), [0, 1])),
    "B21 losses": ("pairs of a largest loss", lambda: md.problem.Consumption.pure((-1.0, 1))),
    "B21 no losses": ("pairs of a largest loss", lambda: md.problem.Consumption.pure("a")),
    "B21 vector": ("dense tensor", lambda: md.SampledCoordinates(4, 1, ONE).squared_error(Raises())),
    "B21 law": ("frozen scipy.stats", lambda: md.noise.flipped_huber_zcdp(Raises())),
    "B21 masked": ("clip", lambda: md.Sum(np.ma.masked)),
    "B21 masked end": ("upper", lambda: md.Mean(0, np.ma.masked, n=5)),
    "B21 start": ("'start' is unknown", lambda: md.OPTM([-3, -0.5, 0.5, 3], ONE, cheap.UNIFORM).solve(start=3)),
    "D26 faults": ("2 faults", lambda: audited("x,-2,2\n-1,b,27%\n1,a,73%\n", percent=True)),
    "D26 fault": ("no number", lambda: audited("x,-2,2\n-1,73%,27%\n1,a,73%\n", percent=True)),
}  # fmt: skip


def right(case: tuple[Callable[[], float], float]) -> None:
    found, true = case[0](), case[1]
    print(f"{found:.6g} where {true:.6g} is right")
    assert found == pytest.approx(true, rel=5e-4)


def at_most(case: tuple[Callable[[], float], float]) -> None:
    found, most = case[0](), case[1]
    print(f"{found:.6g}, at most {most:.6g}")
    assert 0 <= found <= most


CASES |= {name: partial(right, case) for name, case in RIGHT.items()}
CASES |= {name: partial(at_most, case) for name, case in AT_MOST.items()}
CASES |= {name: partial(refused, *case) for name, case in REFUSED.items()}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_wrong_is_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CASES[name]()


# -- Sizes, and work that is too much ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("design", "part", "member", "value"),
    [
        (lambda: md.noise.KNorm(3, cheap.PURE), "mechanism", "widths", {"$tuple": [1.0, 1.0, 1.0]}),
        (lambda: md.OptimalNoise(cheap.PURE, 2, integer=True), "design", "l0", 1),
        (lambda: md.OptimalNoise(cheap.PURE), "design", "l0", 1),
    ],
    ids=["widths of 1", "one whole number", "one number"],
)
def test_the_same_said_at_length_is_accepted_by_both(
    design: Callable[[], Any], part: str, member: str, value: Any, tmp_path: Path
) -> None:
    payload = json.loads(dumps(design().solve()))["payload"]
    payload["fields"][part]["fields"][member] = value
    assert files.package_accepts(payload)
    assert files.alone_accepts(payload)


def many_cells(count: int, bits: int = 0) -> dict[str, Any]:
    """Optimal noise of so many weights, of so many bits, half of them within the sensitivity."""
    payload = files.payload("optimal-noise")
    law = payload["fields"]["mechanism"]["fields"]
    law["weights"] = {"$tuple": [(1 << bits) + k % 7 * (bits > 0) for k in range(count)]}
    law |= {"cells_per_shift": count // 2, "width": 2 / count, "start": -1.0}
    return payload


@pytest.mark.parametrize(("count", "bits"), [(4000, 0), (1182, 12_000)])
def test_small_files_that_ask_for_much_work_are_too_large_to_check(count: int, bits: int) -> None:
    payload = many_cells(count, bits)
    assert not files.package_accepts(payload)
    with pytest.raises(reading.TooLarge, match="too large to check"):
        verify.verify(cheap.sealed(payload))


def summed_delta(rate: float, shift: int, epsilon: float) -> float:
    """δ(ε) of discrete Laplace noise, term by term."""
    k = np.arange(-shift, 1)
    mass = np.tanh(rate / 2) * np.exp(-rate * np.abs(k))
    mass[-1] = mass[0] = 1 / (1 + np.exp(-rate))
    mass[0] *= np.exp(-rate * shift)
    return float(mass @ np.maximum(-np.expm1(epsilon - rate * (shift + 2 * k)), 0.0))


@given(st.integers(1, 3000), st.floats(1e-4, 20), st.floats(0, 1.1))
@settings(max_examples=60, deadline=None)
def test_discrete_laplace_noise_by_a_closed_sum(shift: int, loss: float, part: float) -> None:
    law, epsilon = stats.dlaplace(loss / shift), part * loss
    summed = summed_delta(loss / shift, shift, epsilon)
    assert privacy_profile(law, shift, epsilon) == pytest.approx(summed, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("count", [1, 5])
def test_losses_as_a_function_enclose_listed_ones(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    term = NoiseTerm(stats.dlaplace(1e-4), 10**4, count)
    listed = delta_interval(term, 0.8 * count, closed_form=False)
    monkeypatch.setattr(losses, "_LISTED", 10)
    found = delta_interval(term, 0.8 * count, closed_form=False)
    assert found.lower <= listed.upper and listed.lower <= found.upper and found.width < 0.01


def test_many_rounds_of_large_discrete_noise() -> None:
    options = {"privacy": md.ApproximateDP(1.0, 1e-6), "sensitivity": 10**8, "rounds": 10}
    result = md.calibrate("discrete_laplace", **options)
    assert result.value == pytest.approx(md.calibrate("laplace", **options).value, rel=1e-3)
    assert all(holds for _, _, holds in verify.verify(dumps(result)).rows)
