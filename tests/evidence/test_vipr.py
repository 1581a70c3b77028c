"""Lower bounds as VIPR certificates: every one is checked by a reader of the format that shares no code with the writer."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cheap import solved
from commands import ended
from scipy import sparse, stats
from scipy.optimize import linprog
from vipr_checker import Certificate, Unsound

import mechdesign as md
from mechdesign.evidence.vipr import MOST_ROWS, LinearBound, NoProgramError

BINS, UNIFORM, PURE = [-3.0, -0.5, 0.5, 3.0], stats.uniform(-1, 2), md.PureDP(1.0)
ALPHA, INPUTS, TOUCHED = 0.7, np.linspace(-1, 1, 5), md.clipped(stats.norm(0.1, 0.5), -1, 1)


def quantizer(*args: Any, **more: Any) -> Callable[[], Any]:
    return lambda: md.OptimalQuantizer(BINS, PURE, *(args or [UNIFORM]), **more).solve()


def metric(privacy: Any, **more: Any) -> Callable[[], Any]:
    return lambda: md.MetricQuantizer(BINS, privacy, **({"prior": UNIFORM, "inputs": INPUTS} | more)).solve()


LINEAR: dict[str, Callable[[], Any]] = {
    "channel": lambda: md.MetricChannel(md.MetricSpace.line(np.arange(5.0)), alpha=ALPHA).solve(),
    "noise": lambda: md.OptimalNoise(md.ApproximateDP(1.0, 0.1)).solve(cells=3),
    "noise, pure": lambda: md.OptimalNoise(PURE, loss="squared").solve(cells=2),
    "quantizer": quantizer(),
    "quantizer, squared": quantizer(loss="squared"),
    "quantizer, worst": quantizer(objective="worst", loss="squared"),
    "quantizer, bias": quantizer(max_bias=0.2),
    "quantizer, cap": quantizer(max_mse=4.48),
    "quantizer, normal": quantizer(TOUCHED),
    "quantizer, beta": quantizer(stats.beta(2, 3, -1, 2), loss=md.Loss(absolute=1.0, squared=0.5)),
    "quantizer, samples": quantizer([-0.9, -0.25, -0.25, 0.5, 0.75], input_range=(-0.9, 0.75)),
    "metric": metric(md.MetricDP(1.0)),
    "metric, squared": metric(md.MetricDP(2.0, "squared"), loss="squared", prior=TOUCHED),
    "metric, steep": metric(md.MetricDP(20.0)),
    "metric, pure": metric(PURE, prior=[-0.9, -0.25, 0.75]),
    "metric, approximate": metric(md.ApproximateDP(1.0, 0.05)),
    "metric, one end": metric(md.MetricDP(1.0), objective="worst", inputs=[-1.0, -0.4, 0.4, 2.0], prior=stats.uniform(-1, 3)),
    "metric, worst": metric(md.ApproximateDP(1.0, 0.01), objective="worst", loss="squared"),
    **{f"cheap: {n}": (lambda n=n: solved(n)) for n in ("optm", "alphabet", "metric-channel", "optimal-noise", "optimal-integer-noise")},
}  # fmt: skip


@cache
def case(name: str) -> tuple[md.Result, str]:
    result = LINEAR[name]()
    with tempfile.TemporaryDirectory() as folder:
        result.to_vipr(file := Path(folder) / "bound.vipr")
        return result, file.read_text(encoding="ascii")


def refused(text: str) -> bool:
    try:
        Certificate(text)
    except (Unsound, ValueError, KeyError, StopIteration, ZeroDivisionError):
        return True
    return False


def least(read: Certificate) -> float:
    """The program's optimum, by a solver in doubles."""
    shape = len(read.program), len(read.names)
    entries = [(float(a), i, k) for i, row in enumerate(read.program) for k, a in row.left.items()]
    values, at, of = zip(*entries)
    matrix = sparse.csr_array((values, (at, of)), shape=shape)
    right = np.array([float(row.right) for row in read.program])
    sense = np.array([row.sense for row in read.program])
    cost = np.zeros(shape[1])
    cost[list(read.objective)] = [float(c) for c in read.objective.values()]
    upper, equal = sense != 0, sense == 0
    flip = sparse.diags_array(-sense[upper].astype(float))
    given = {"A_ub": flip @ matrix[upper], "b_ub": flip @ right[upper]}
    if equal.any():
        given |= {"A_eq": matrix[equal], "b_eq": right[equal]}
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    return float(linprog(cost, **given, bounds=(None, None), method="highs", options=tight).fun)


@pytest.mark.parametrize("name", LINEAR)
def test_a_certificate_proves_the_bound_that_the_result_states(name: str) -> None:
    result, text = case(name)
    read = Certificate(text)
    proved, stated = Fraction(read.range[0]), Fraction(result.lower_bound)
    assert stated * (1 - Fraction(1, 10**9)) <= proved <= stated and read.range[1] == "inf"
    assert 0 < proved <= Fraction(result.value) and repr(result.lower_bound) in " ".join(read.comment)
    assert least(read) >= float(proved) * (1 - 1e-5)  # doubles keep rows of costs of 1e4 to so many digits
    assert ("\ncap" in text) == ("cap" in name)
    assert text.isascii() and max(map(len, read.comment)) < 120


def derived(text: str) -> Fraction:
    return Fraction(text.partition("bound G ")[2].split()[0])


DOCTORED: dict[str, Callable[[str], str]] = {
    "the bound": lambda t: re.sub(r"RTP range \S+", f"RTP range {derived(t) * (1 + Fraction(1, 10**9))}", t),
    "the bound and its derivation": lambda t: re.sub(
        r"(RTP range|bound G) (\S+)", lambda m: f"{m[1]} {Fraction(m[2]) * (1 + Fraction(1, 10**9))}", t
    ),
    "a multiplier": lambda t: re.sub(r" (\S+) \} -1", lambda m: f" {Fraction(m[1]) + Fraction(1, 10**12)} }} -1", t),
    "its sign": lambda t: re.sub(r"lin (\d+) (\d+) (\S+)", lambda m: f"lin {m[1]} {m[2]} {-Fraction(m[3])}", t),
    "a coefficient": lambda t: re.sub(r"(CON .*\n(?:.*\n)*?)(\S+ [GLE] \S+ \d+ \d+) (\S+)", lambda m: f"{m[1]}{m[2]} {Fraction(m[3]) * (1 - Fraction(1, 10**9))}", t, count=1),
    "a cost": lambda t: re.sub(r"(OBJ min\n\d+ \d+) (\S+)", lambda m: f"{m[1]} {Fraction(m[2]) + Fraction(1, 10**9)}", t),
    "a sense": lambda t: re.sub(r"(\nprivate\d+|\nfloor\d+|\nprivacy\d+|\nmean\d+|\nworst\d+|\nceiling\d+) ([GLE])", lambda m: f"{m[1]} {'L' if m[2] == 'G' else 'G'}", t),
    "a row left out": lambda t: re.sub(r"\n.*\nRTP", "\nRTP", t),
    "a row left out, and its count": lambda t: re.sub(r"CON (\d+)", lambda m: f"CON {int(m[1]) - 1}", re.sub(r"\n.*\nRTP", "\nRTP", t)),
    "a derivation left out": lambda t: t[: t.index("DER")] + "DER 0\n",
    "no derivation": lambda t: t[: t.index("DER")],
    "an assumption": lambda t: re.sub(r"\{ lin .* \}", "{ asm }", t),
    "another version": lambda t: t.replace("VER 1.0", "VER 2.0"),
    "a comment later": lambda t: t.replace("RTP", "% RTP"),
}  # fmt: skip


@pytest.mark.parametrize("how", DOCTORED)
@pytest.mark.parametrize("name", ["channel", "noise", "quantizer, bias", "metric"])
def test_a_doctored_certificate_is_refused(name: str, how: str) -> None:
    _, text = case(name)
    doctored = DOCTORED[how](text)
    assert doctored != text and refused(doctored) and not refused(text)


@pytest.mark.parametrize(
    ("program", "right"),
    [("RTP range 2 inf", True), ("RTP range 9/4 inf", False), ("RTP range -inf inf", True)],
)
def test_the_reader_of_the_format_on_a_program_of_two_variables(program: str, right: bool) -> None:
    """min x + y over 2x + y >= 3, x + 2y >= 3."""
    text = f"% by hand\nVER 1.0\nVAR 2 x y\nINT 0\nOBJ min 2 0 1 1 1\nCON 2 0\nA G 3 2 0 2 1 1\nB G 3 2 0 1 1 2\n{program}\n"
    point, derived = "SOL 1\nbest 2 0 1 1 1\n", "DER 1\nC G 2 OBJ { lin 2 0 1/3 1 1/3 } -1\n"
    assert refused(text + point + derived) != right
    assert refused(text + point.replace("0 1 1 1", "0 1 1 1/2") + derived)
    assert refused(text + point + derived.replace("1 1/3 }", "1 -1/3 }"))
    assert refused(text.replace("inf\n", "3/2\n") + point + derived) or "-inf" in program


def slack(read: Certificate, point: dict[str, Any]) -> float:
    """By how much a point breaks the worst row, and that it has a value for every variable."""
    values = [point[name] for name in read.names]
    sums = [(row.sense, sum(a * values[k] for k, a in row.left.items()) - row.right) for row in read.program]
    return float(min(-abs(off) if sense == 0 else sense * off for sense, off in sums))


@pytest.mark.parametrize(
    "name", ["metric", "metric, squared", "metric, steep", "metric, pure", "metric, one end"]
)
def test_a_metric_quantizer_itself_is_a_point_of_its_program(name: str) -> None:
    result, text = case(name)
    read, law = Certificate(text), result.mechanism.law
    rows = [law.row(0, 0), *(law.row(k, 1) for k in range(len(law.knots) - 1))]
    point: dict[str, Any] = {"one": 1, "worst": Fraction(result.value)} | {
        f"a.0.{i}": min(p) for i, p in enumerate(zip(*rows))
    }
    point |= {f"P{x}.{i}": p for x, row in enumerate(rows) for i, p in enumerate(row)}
    assert slack(read, point) >= 0
    cost = sum(c * point[read.names[k]] for k, c in read.objective.items())
    assert Fraction(result.lower_bound) <= cost <= Fraction(result.value)


def test_lattice_noise_itself_is_a_point_of_its_program() -> None:
    """The law, rounded at random to the lattice; mass beyond the program's last point stands there."""
    result, text = case("noise")
    (cells, side), law = result.proofs[-1].given, result.mechanism
    read, step = Certificate(text), 1 / cells
    reach = side + 1  # the mass beyond stands there, of both sides together
    ends = law.start + law.width * np.arange(len(law.weights) + 1)
    cells = [(a, b, w) for a, b, w in zip(ends, ends[1:], law.weights)]
    cells.append((-law.spike_width / 2, law.spike_width / 2, law.spike))
    assert law.decay == 0
    masses = dict.fromkeys(range(-reach, reach + 1), 0.0)
    for a, b, w in cells:
        cuts = np.unique(
            [a, b, *(j * step for j in range(math.ceil(a / step), math.floor(b / step) + 1))]
        ).clip(a, b)
        for u, v in zip(cuts, cuts[1:]):
            place, part = (u + v) / 2 / step, (v - u) / (b - a) * w / law.total
            j = math.floor(place)  # the hat functions are affine there: their mean is that at the middle
            for k, share in ((j, j + 1 - place), (j + 1, place - j)):
                masses[min(max(k, -reach), reach)] += share * part
    point: dict[str, Any] = dict.fromkeys((name for name in read.names if name.startswith("S")), 0.0)
    point |= {f"P0.{j}": masses[j] + (j > 0) * masses[-j] for j in range(reach + 1)}
    for row in read.program:  # the least excess that a row allows
        over = [read.names[k] for k, a in row.left.items() if read.names[k].startswith("S") and a < 0]
        if len(over) == 1:
            point[over[0]] = max(
                0.0,
                sum(float(a) * point[read.names[k]] for k, a in row.left.items() if read.names[k] != over[0]),
            )
    assert slack(read, point) >= -1e-12
    cost = sum(float(c) * point[read.names[k]] for k, c in read.objective.items())
    assert result.lower_bound <= cost <= result.value + 1e-12


@pytest.mark.parametrize(
    "name",
    [
        *("quantizer", "quantizer, squared", "quantizer, bias", "quantizer, cap", "quantizer, worst"),
        *("search", pytest.param("search, squared", marks=pytest.mark.slow)),
    ],
)
def test_a_quantizer_itself_is_a_point_of_its_program_at_its_own_loss(name: str) -> None:
    """The lemma, by quadrature: means of the probabilities over the pieces meet every row, and cost what the quantizer costs.

    Where any outputs between two are spoken of, a quantizer with others is drawn at random on those of the program.
    """
    if name.startswith("search"):
        loss = "squared" if "squared" in name else "absolute"
        grid = md.Grid(delta=[1.6, 2.0], q=[0.4, 0.5])
        found = md.RQM(4, md.PureDP(1.5), UNIFORM, loss=loss, grid=grid).solve(zoom=0)
        result = md.OptimalQuantizer([-2.31, -0.63, 0.7, 2.4], md.PureDP(1.5), UNIFORM, loss=loss).solve()
        duals, lowest = found.proofs[-1].duals, found.lower_bound
        assert duals.between
        text = found.proofs[-1].linear_bound(found.certificate).text(found.lower_bound)
    else:
        result, text = case(name)
        duals, lowest = result.proofs[-1].duals, result.lower_bound
    read, knots = Certificate(text), np.array(result.mechanism.law.knots, dtype=float)
    bins = result.mechanism.bins
    outputs = bins if duals.outputs is None else duals.outputs
    split = np.array([np.interp(bins, outputs, unit) for unit in np.eye(len(outputs))]).T

    def rows(x: Any) -> Any:
        return result.mechanism.probabilities(x) @ split

    fine = np.linspace(-1, 1, 2001)
    point: dict[str, Any] = {"one": 1.0, "worst": result.value}
    for label, values in (
        ("a", rows(np.append(fine, knots)).min(axis=0)),
        ("high", rows(np.ones(1))[0]),
        ("low", rows(-np.ones(1))[0]),
    ):
        point |= {f"{label}_{k}": p for k, p in enumerate(values)}
    nodes, weights = np.polynomial.legendre.leggauss(8)
    for number, (u, v, share) in enumerate(duals.pieces[:, :3]):
        cuts = np.unique([u, v, *knots[(knots > u) & (knots < v)]])
        parts = [
            ((b - a) / 2 * nodes + (a + b) / 2, weights * (b - a) / 2 * share / 2)
            for a, b in zip(cuts, cuts[1:])
        ]
        for x, w in parts or [(np.array([u]), np.ones(1))]:
            t = (x - u) / (v - u) if u < v else np.zeros(1)
            for side, part in ((0, (1 - t) * w), (1, t * w)):
                for k, p in enumerate(part @ rows(x)):
                    key = f"r{number}_{side}_{k}"
                    point[key] = point.get(key, 0.0) + p
    assert slack(read, point) >= -1e-9
    cost = sum(float(c) * point[read.names[k]] for k, c in read.objective.items())
    assert lowest - 1e-9 <= cost <= result.value + 1e-9


def test_what_does_not_hold_is_not_written(tmp_path: Path) -> None:
    target = tmp_path / "bound.vipr"
    for name in ("channel", "noise", "quantizer", "metric"):
        result, _ = case(name)
        for raised in (result.lower_bound * (1 + 1e-8), -math.inf, math.nan):
            with pytest.raises(md.ResultFormatError):
                replace(result, lower_bound=raised).to_vipr(target)
        with pytest.raises(NoProgramError, match="no lower bound"):
            replace(result, lower_bound=None).to_vipr(target)
        with pytest.raises(NoProgramError, match="only claimed"):
            replace(result, proofs=()).to_vipr(target)
    assert not target.exists()


def test_too_large_is_said_before_the_work() -> None:
    with pytest.raises(NoProgramError, match="too large"):
        LinearBound("", MOST_ROWS + 1)


def test_the_command(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case("channel")[0].save("channel.json")
    solved("calibration").save("noise.json")
    md.sweep(md.OptimalQuantizer(BINS, PURE, UNIFORM), epsilon=[1.0]).save("many.json")
    md.OptimalNoise(PURE).solve().save("staircase.json")
    code, out, _ = ended(["certificate", "channel.json", "--vipr", "bound.vipr"], capsys, monkeypatch)
    assert code == 0 and repr(case("channel")[0].lower_bound) in out
    assert not refused(Path("bound.vipr").read_text())
    for name, why in (("noise", "family"), ("staircase", "staircase"), ("many", "not one result")):
        code, out, said = ended(["certificate", f"{name}.json", "--vipr", "no.vipr"], capsys, monkeypatch)
        assert code == 2 and why in said and said.count("\n") == 1 and not out
        assert not Path("no.vipr").exists()
    for words in (
        ["absent.json", "--vipr", "no.vipr"],
        ["channel.json", "--vipr", "channel.json"],
        ["channel.json", "--vipr", "a/b"],
    ):
        code, _, said = ended(["certificate", *words], capsys, monkeypatch)
        assert code == 1 and said.startswith("error: ") and said.count("\n") == 1
