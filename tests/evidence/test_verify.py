"""The stand-alone verifier: against the package's own verification on sound, damaged and doctored files."""

from __future__ import annotations

import ast
import functools
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pytest
from campaign import files, trees
from scipy import stats

import mechdesign as md
from mechdesign import channels, noise, user_level
from mechdesign.evidence import exact
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.results import OF_SEARCH
from mechdesign.evidence.serialize import KINDS, dumps, encode, loads
from mechdesign.noise import LatticeBound
from mechdesign.quantizers.proofs import QuantizerProof
from mechdesign.verifier import archive, arithmetic, verify
from mechdesign.verifier.knorm import Planes
from mechdesign.verifier.reading import Account


def outcome(text: str) -> str:
    """ "holds", "fails" or "not covered"."""
    try:
        return "holds" if all(holds for *_, holds in verify.verify(text).rows) else "fails"
    except verify.NotCovered:
        return "not covered"
    except (verify.Refused, ValueError, KeyError, TypeError, RecursionError):
        return "fails"


def test_it_needs_python_alone(tmp_path: Path) -> None:
    for source in Path(verify.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            outside = {name.partition(".")[0] for name in names if not name.startswith("mechdesign.verifier")}
            assert outside <= sys.stdlib_module_names, source
    archive.build(tmp_path / "verify.pyz")
    archive.build(tmp_path / "again.pyz")
    assert (tmp_path / "verify.pyz").read_bytes() == (tmp_path / "again.pyz").read_bytes()
    cheap.solved("optm").save(tmp_path / "good.json")
    unknown = md.calibrate(stats.hypsecant(), privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1)
    unknown.save(tmp_path / "other.json")
    (tmp_path / "bad.json").write_text((tmp_path / "good.json").read_text().replace("0.5", "0.6", 1))
    for name, code, word in (
        ("good", 0, "privacy loss"),
        ("bad", 1, "checksum"),
        ("other", 2, "not covered"),
        ("none", 1, "error"),
    ):
        run = subprocess.run(
            [sys.executable, "-I", "-S", "verify.pyz", f"{name}.json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert run.returncode == code and word in run.stdout + run.stderr and "Traceback" not in run.stderr


def test_options_of_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Help writes no file called --help; work is allowed, and claims are printed for programs."""
    file = tmp_path / "good.json"
    cheap.solved("optm").save(file)
    assert verify.main(["--help"]) == 0 and "--seconds" in capsys.readouterr().out
    assert verify.main([]) == 1
    for word in ("many", "nan"):
        assert verify.main([str(file), "--seconds", word]) == 1
    capsys.readouterr()
    assert verify.main([str(file), "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)
    assert all(claim["holds"] for claim in claims)
    margins = {claim["claim"]: claim["margin"] for claim in claims}
    assert 0 <= margins["privacy loss at most 1.0"] < 1e-9 and margins["outputs and knots increase"] is None
    cheap.solved("optm").report(tmp_path / "page.html")
    (tmp_path / "good.json.gz").write_bytes(gzip.compress(file.read_bytes()))
    for name in ("page.html", "good.json.gz"):
        assert verify.main([str(tmp_path / name), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == claims
        assert verify.main([str(tmp_path / name)]) == 0
        said = capsys.readouterr().out
        assert "none fail" in said and ("what the page shows is not compared" in said) == ("page" in name)
        (tmp_path / name).unlink()
    assert verify.main([str(file), "--seconds", "-1"]) == 2 and "too large" in capsys.readouterr().out
    command = [sys.executable, "-m", "mechdesign.verifier.archive", "--help"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0 and "verify.pyz" in run.stdout and sorted(tmp_path.iterdir()) == [file]


def numbered(claims: Iterable[str], measured: Container[str]) -> list[str]:
    """Claims that name a number and have no margin, but for two that say on what a law is, or for what."""
    number = re.compile(r"(?<![\w.])\d")
    said = "a coordinate's law is one, on [-1, 1]", "each unit is noise for a change of 1"
    return [c for c in claims if number.search(c) and c not in measured and not c.startswith(said)]


@pytest.mark.parametrize("name", files.DESIGNS)
def test_sound_results(name: str) -> None:
    """And as much is proved as the package proves, but for the moments of laws and the bounds of metric quantizers."""
    result, text = files.solved(name), files.text(name)
    assert files.package_accepts(files.payload(name)) and dumps(loads(text)) == text
    left = {claim.claim: claim.margin for claim in result.checks().itertuples() if claim.how != "claimed"}
    assert numbered(left, {claim for claim, margin in left.items() if margin == margin}) == []
    if name in files.NOT_COVERED:
        assert outcome(text) == "not covered"
        return
    assert outcome(text) == "holds"
    account = verify.verify(text)
    rows = account.rows
    assert numbered((claim for claim, how, _ in rows if how != "claimed"), account.margins) == []
    known = (
        "the masses and moments",
        "any outputs in the range",
        "no private noise",
        "no independent noise",
        "no scales of",
        "status",
    )
    known += ("what is consumed", "the change is what", OF_SEARCH)
    claimed = [claim for claim, how, _ in rows if how == "claimed" and not claim.startswith(known[1:])]
    beyond = (*known, "no mechanism") if name.startswith("metric-q") else known
    others = ("metric-grid", "matrix-", "plan")
    assert [c for c in claimed if not c.startswith(beyond)] == [] or name.startswith(others)
    if any(isinstance(proof, QuantizerProof) for proof in result.proofs) and not claimed:
        assert {how for c, how, _ in rows if not c.startswith(known)} == {"proved"}


PRIORS: dict[str, Any] = {
    "steep beta": stats.beta(300, 200, -1, 2),
    "beta with poles": stats.beta(0.05, 0.05, -1, 2),
    "clipped beta": md.clipped(stats.beta(2, 3, -2, 4), -1, 1),
    "clipped normal": md.clipped(stats.norm(0.3, 0.4), -1, 1),
    "narrow normal": md.truncated(stats.norm(0.31, 0.001), -1, 1),
    "far normal": md.truncated(stats.norm(-5, 1), -1, 1),
    "truncated normal": stats.truncnorm(-1, 1),
    "clipped truncated normal": md.clipped(stats.truncnorm(-2, 2, loc=0.5, scale=0.7), -1, 1),
    "truncated truncated normal": md.truncated(stats.truncnorm(-2, 2, loc=0.5, scale=0.7), -1, 1),
}


def files_of_prior(name: str) -> tuple[str, str]:
    """A file, and the same of a law with a parameter that is 1e-13 off."""
    sound = dumps(md.OptimalQuantizer(cheap.BINS, cheap.PURE, PRIORS[name]).solve())
    payload = json.loads(sound)["payload"]
    payload["fields"]["design"]["fields"]["prior"]["fields"]["law"]["args"][0] *= 1 + 1e-13
    return sound, cheap.sealed(payload)


@pytest.mark.parametrize("name", PRIORS)
def test_moments_of_normal_and_beta_laws_are_proved(name: str) -> None:
    """And of no other law: a parameter that is 1e-13 off is seen."""
    sound, altered = files_of_prior(name)
    rows = verify.verify(sound).rows
    assert all(holds for *_, holds in rows) and "claimed" not in {how for _, how, _ in rows}
    failed = [claim for claim, _, holds in verify.verify(altered).rows if not holds]
    assert failed and all(claim.startswith("the masses and moments") for claim in failed)


def test_exponentials_enclose(tmp_path: Path) -> None:
    rng = random.Random(0)
    for x in [0, 1, -1, 1e-300, 700, -700, 5000, *(rng.uniform(-50, 50) for _ in range(200))]:
        low, high = arithmetic.exp_bounds(Fraction(x))
        assert low <= exact.exp_upper(Fraction(x)) and exact.exp_lower(Fraction(x)) <= high
        assert 0 < low <= high <= low * (1 + Fraction(1, 2**200))


def test_the_privacy_of_any_lattice_noise() -> None:
    """Few cells to a shift, many, tails, spikes: δ is what the package finds, to the last unit."""
    rng = random.Random(5)
    result = loads(files.text("optimal-noise"))
    none = (  # rows of the bound have other numbers where δ is 0
        replace(p, rows=p.rows[:0], multipliers=()) if isinstance(p, LatticeBound) else p
        for p in result.proofs
    )
    text = dumps(replace(result, proofs=tuple(none)))
    for _ in range(60):
        n, tails = rng.randint(1, 7), rng.random() < 0.5
        count = rng.randint(2 * n, 3 * n) if tails else rng.randint(1, 3 * n)
        law = md.noise.CellNoise(
            weights=tuple(rng.randint(1, 9) for _ in range(count)),
            width=0.125,
            start=-count / 16,
            cells_per_shift=n,
            spike=(spike := rng.choice([0, 3])),
            spike_width=0.1 if spike else 0.0,
            decay=Fraction(rng.randint(1, 8), 9) if tails else Fraction(0),
        )
        delta = law.exact_delta(1.0)
        less = round_down(delta * (1 - Fraction(1, 10**12)))
        for allowed, holds in ((round_up(delta), True), (less, delta == 0)):
            payload = json.loads(text)["payload"]
            payload["fields"]["design"]["fields"]["privacy"]["fields"] |= {"epsilon": 1.0, "delta": allowed}
            payload["fields"]["mechanism"] = encode(law)
            if allowed == 1:  # nobody asks for it
                assert outcome(cheap.sealed(payload)) == "fails"
                continue
            rows = verify.verify(cheap.sealed(payload)).rows
            assert [row[2] for row in rows if row[0].startswith("delta at most")] == [holds]


def test_the_documentation_shows_what_it_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    stated = (
        text.partition("$ python -m mechdesign.verifier result.json\n")[2].partition("\n```")[0].split("\n")
    )
    cheap.solved("optimal-quantizer").save(tmp_path / "result.json")
    assert verify.main([str(tmp_path / "result.json")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(stated)
    for line, shown in zip(printed, stated):  # the digits of small margins are a solver's
        line, shown = (re.sub(r" +[-.e\d]+  ", " #  ", text) for text in (line, shown))
        assert line.startswith(shown.rstrip("…"))


@pytest.mark.parametrize(
    "name",
    ["counts-gaussian", "counts-signed", "correlated-gaussian", "matrix-mechanism", "covariance-problem"],
)
def test_a_whitening_is_the_same_in_any_order_of_its_rows(name: str) -> None:
    """Noise whitened by other rows has the same covariance: both checkers say so, and neither of rows that are others."""
    payload = files.payload(name)
    (held,) = [leaf for leaf in ("whitening", "strategy") if leaf in payload["fields"]["mechanism"]["fields"]]
    rows = payload["fields"]["mechanism"]["fields"][held]["$array"]
    rows[0], rows[1] = rows[1], rows[0]
    assert files.package_accepts(payload) and files.alone_accepts(payload)
    rows[1] = [2 * x for x in rows[0]]
    assert not files.package_accepts(payload) and not files.alone_accepts(payload)


@pytest.mark.parametrize("outputs", [100, 400])
def test_what_is_too_much_work_is_refused_before_it_is_done(outputs: int, tmp_path: Path) -> None:
    """A selection of 100 outputs at odd places has sums over denominators of 6,000 digits: none is added up."""
    payload = json.loads(dumps(cheap.solved("rqm")))["payload"]
    law = payload["fields"]["mechanism"]["fields"]["law"]["fields"]
    rng = random.Random(outputs)
    places = sorted(Fraction(rng.uniform(-3, 3)) for _ in range(outputs))
    law["bins"] = encode(tuple(places))
    for side in ("left", "right"):
        law[side] = encode(tuple(tuple(rng.randrange(1, 2**72) for _ in range(k)) for k in range(1, outputs)))
    (tmp_path / "large.json").write_text(cheap.sealed(payload))
    assert verify.main([str(tmp_path / "large.json")]) == 2


@pytest.mark.parametrize(
    "unit", [Fraction(1, 10**320), Fraction(1, 10**200), Fraction(1), Fraction(10**9), Fraction(10**300)]
)
def test_the_largest_norm_by_planes_is_that_of_fractions_in_every_unit(unit: Fraction) -> None:
    rng = random.Random(0)
    rows = [[rng.randint(-(2**24), 2**24) for _ in range(4)] for _ in range(30)]
    rows += [
        [x + rng.randint(-1, 1) for x in row] for row in rows
    ]  # which doubles tell from the others at times
    points = [[unit * Fraction(rng.gauss(0, 1)) for _ in range(4)] for _ in range(20)]
    largest = max(abs(sum(a * x for a, x in zip(row, point))) for row in rows for point in points)
    account = Account()
    left = account.left
    assert Planes({"planes": rows}, account).most(points) == largest / 2**24
    assert unit < Fraction(1, 10**300) or left - account.left < 1.2 * len(rows) * len(points)  # few are exact


def test_an_interrupt_is_answered_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "file.json")
    words = [sys.executable, "-m", "mechdesign.verifier", str(path)]
    child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    with child, open(path, "w"):  # it has opened the file, and waits for its text
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (130, "error: interrupted\n")


# -- Every kind of file: mechanisms without a result, several results together, and what claims nothing


SEVERAL = {"certificate", "comparison", "frontier", "result"}
SIMULATED = {"priv-unit"}
"""Private in real numbers, without an exact `release`: that is printed."""
LAWS = {"block-fill-law", "rational-table", "selection-law"}
"""Of which quantizers are made."""


@functools.cache
def documents() -> dict[str, str]:
    """The text of a file for every kind; of releases item by item one that is accounted for without shuffling."""
    item = item_by_item(item_alpha=1.0, accounting="composition", delta=0.0)
    reduced = user_level.ReducedRelease(item, radius=0.1, failure=1e-7)
    return cheap.documents() | {"itemwise-release": dumps(item), "reduced-release": dumps(reduced)}


@functools.cache
def deployed() -> set[str]:
    """Kinds whose objects have a `release`, hold results, or are laws that are released as a part of others."""
    texts = documents()
    released = {kind for kind in KINDS if hasattr(loads(texts[kind]), "release")}
    return (released | SEVERAL | SIMULATED | LAWS | {"frequency-estimate"}) - {*verify.UNCOVERED}


def rows(value: object) -> list[tuple[str, str, bool]]:
    return verify.verify(value if isinstance(value, str) else dumps(value)).rows


def refused(text: str) -> bool:
    """Whether it is refused, or a claim does not hold; a file that is not covered is not refused."""
    try:
        return not all(holds for *_, holds in rows(text))
    except verify.NotCovered:
        return False
    except verify.Refused:
        return True


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_checked_or_claims_nothing(kind: str, tmp_path: Path) -> None:
    text = documents()[kind]
    (tmp_path / "file.json").write_text(text, encoding="utf-8")
    code = verify.main([str(tmp_path / "file.json")])
    if kind in deployed():
        assert code == 0 and rows(text)
    elif kind in verify.UNCOVERED:
        assert code == 2
        with pytest.raises(verify.NotCovered, match=verify.UNCOVERED[kind]):
            verify.verify(text)
    elif kind in verify.CHECKS:
        assert code == 1
        with pytest.raises(verify.Refused, match="nothing is claimed"):
            verify.verify(text)
    else:
        assert code == 2
        with pytest.raises(verify.NothingToCheck, match="claims nothing"):
            verify.verify(text)


def clustered() -> md.MetricSpace:
    return md.MetricSpace.clustered(2, 2, within=0.1)


def quantizer() -> md.Quantizer:
    return md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)).certified()


def item_by_item(**asked: Any) -> md.ItemwiseRelease:
    given = {"delta": 1e-7, "items": 50, "users": 3, **asked}
    return md.ItemwiseRelease(clustered(), **given)


def linear(**asked: Any) -> md.LinearRelease:
    space = md.MetricSpace.grid(3, 4)
    values = np.random.default_rng(0).normal(size=(12, 3))
    return md.LinearRelease(user_level.LinearQuery(space, values), alpha=0.7, **asked)


def sensitivity(**bounds: Any) -> md.Sensitivity:
    return md.Sensitivity(each=[1.0, 2.0, 1.5], **bounds)


def additive(family: str, privacy: object = None, **asked: Any) -> Any:
    asked = {"sensitivity": 1, "privacy": privacy or md.ApproximateDP(1.0, 1e-6), **asked}
    return md.calibrate(family, **asked).mechanism


def allocated(**bounds: Any) -> Any:
    return md.NoiseAllocation("laplace", sensitivity(**bounds), md.PureDP(0.7)).solve().mechanism


STATED: dict[str, tuple[Callable[[], Any], Callable[[Any], float], float]] = {
    "quantizer": (quantizer, lambda q: q.privacy_loss(), 1e-9),
    "rational table": (lambda: cheap.solved("optimal-quantizer").mechanism, lambda q: q.privacy_loss(), 1e-9),
    "coordinates": (lambda: md.CoordinateQuantizer(quantizer(), 7), lambda q: q.privacy_loss(), 1e-9),
    "integer table": (lambda: md.vectors.IntegerTable.of(quantizer()), lambda t: t.privacy_loss(), 1e-9),
    "channel": (lambda: cheap.solved("metric-channel").mechanism, lambda c: c.epsilon, 1e-9),
    "doubles": (lambda: channels.Channel.exponential(md.MetricSpace.line([0, 1, 3.0]), 0.8), lambda c: c.epsilon, 1e-9),
    "laplace": (lambda: additive("laplace", rounds=3, dimension=2), lambda n: n.rounds * n.dimension / n.law.kwds["scale"], 1e-9),
    "discrete laplace": (lambda: additive("discrete_laplace"), lambda n: n.law.args[0], 1e-9),
    "gaussian": (lambda: additive("gaussian"), lambda n: 0.5 / n.law.kwds["scale"] ** 2, 1e-9),
    "discrete gaussian": (lambda: additive("discrete_gaussian"), lambda n: 0.5 / float(n.law.args[0]) ** 2, 1e-9),
    "flipped Huber": (lambda: additive("flipped_huber", dimension=3), lambda n: n.delta_interval(1.0).lower, 0.02),
    "sampled": (lambda: additive("gaussian", sampling_rate=0.1, rounds=5), lambda n: n.delta_interval(1.0).lower, 1e-2),
    "cells": (lambda: cheap.solved("optimal-noise").mechanism, lambda n: float(n.exact_delta(1.0)), 1e-9),
    "decaying cells": (lambda: cheap.solved("optimal-noise-many").mechanism, lambda n: 2.0, 1e-9),
    "allocation": (lambda: md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(0.7)).solve().mechanism, lambda n: 0.7, 1e-9),
    "few change": (lambda: allocated(l0=2), lambda n: 0.7, 1e-9),
    "bounded in l1": (lambda: allocated(l1=2.5), lambda n: 0.7, 0.5),
    "bounded in l2": (lambda: allocated(l2=2.0), lambda n: 0.7, 0.5),
    "normal allocation": (lambda: md.NoiseAllocation("gaussian", [1.0, 2.0], md.ZeroConcentratedDP(0.3)).solve().mechanism, lambda n: 0.3, 1e-9),
    "K-norm": (lambda: cheap.solved("knorm").mechanism, lambda n: n.loss(n.largest), 1e-9),
    "linear": (lambda: linear(users=10), lambda r: r.scale, 1e-12),
    "linear, l2": (lambda: linear(norm=2), lambda r: r.scale, 1e-12),
    "linear, normal": (lambda: linear(gaussian=True, delta=1e-6), lambda r: r.scale, 1e-12),
    "linear, line": (lambda: md.LinearRelease(user_level.LinearQuery.average(md.MetricSpace.line([0, 5, 1.0])), alpha=2.0, users=4), lambda r: r.scale, 1e-12),
    "items, one by one": (lambda: item_by_item(item_alpha=1.0, accounting="composition", delta=0.0), lambda r: r.alpha, 1e-9),
    "reduced": (lambda: user_level.ReducedRelease(linear(users=5), radius=0.5, samples=200), lambda r: r.guarantee.alpha, 1e-9),
    "estimate": (lambda: md.FrequencyEstimate(channels.HadamardResponse(5, 1.0)), lambda e: e.channel.epsilon, 1e-9),
}  # fmt: skip
WORDS = "privacy loss at most", "alpha at most", "rho at most", "delta at most", "loses at most"
NUMBERS = [re.compile(f"(?:{words}) ([-+.e0-9]+)") for words in ("scale of|deviation of", "|".join(WORDS))]


@pytest.mark.parametrize("name", STATED)
def test_what_is_printed_is_what_the_package_computes(name: str) -> None:
    """From above, and as near as stated."""
    made, computed, near = STATED[name]
    mechanism = made()
    claims = [claim for claim, _, holds in rows(mechanism) if holds and re.search("|".join(WORDS), claim)]
    claims = claims or [claim for claim, *_ in rows(mechanism)]
    found = next(numbers for number in NUMBERS if (numbers := number.findall(claims[-1])))
    expected = computed(mechanism)
    assert expected * (1 - 1e-9) <= float(found[0]) <= expected * (1 + near)


def bent(kind: str, *steps: tuple[tuple[Any, ...], Any]) -> str:
    """The file of a kind, with other values at some places, sealed anew."""
    payload = json.loads(documents()[kind])["payload"]
    for path, value in steps:
        place = ("fields", *path)
        payload = trees.put(payload, place, value(trees.at(payload, place)) if callable(value) else value)
    return cheap.sealed(payload)


DOCTORED: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "additive-noise": [(("rounds",), 0), (("sampling_rate",), 1.5), (("dimension",), 0)],
    "block-fill-law": [(("floors", "$tuple", 0, "$fraction"), "3/1"), (("rho", "$fraction"), "1/2")],
    "cell-noise": [(("weights", "$tuple", 0), -1), (("decay", "$fraction"), "3/2"), (("cells_per_shift",), 0)],
    "buffered-noise": [(("weights", "$tuple", 0), 2**62), (("poles", "$tuple", 0), 2**62), (("step",), 0.3)],
    "cell-product": [(("l0",), 5), (("dimension",), 0)],
    "certificate": [(("value",), lambda v: v * 0.9), (("lower_bound",), lambda v: v * 1.01)],
    "channel": [(("weights", "$tuple", 0, "$tuple", 0), lambda w: 2 * w), (("matrix", "$array", 0, 0), 0.5)],
    "choice-rule": [(("rate",), 0.0), (("rule",), "the first")],
    "choice-table": [(("weights", "$tuple", 0, "$tuple", 0), -1), (("inputs", "$tuple"), [])],
    "quantile-rule": [(("rate",), -1.0), (("rule",), "the first")],
    "clustered-response": [(("space", "fields", "within"), 2.0), (("space", "fields", "kind"), "line")],
    "comparison": [(("results", "$items", 0, 1, "fields", "value"), lambda v: v * 0.9), (("results", "$items", 0, 0), "other"), (("privacy", "fields", "epsilon"), 0.5), (("least",), 7.9)],
    "coordinate-noise": [(("which", "$array", 0), -1), (("units", "$tuple", 0, "fields", "dimension"), 1), (("units", "$tuple", 0, "fields", "sensitivity"), 0.5)],
    "correlated-gaussian-noise": [(("covariance", "$array", 0, 0), lambda v: v * 0.99), (("whitening", "$array", 0, 0), lambda v: v * 1.01)],
    "frequency-estimate": [(("space", "fields", "shape", "$tuple"), [2, 3])],
    "frontier": [(("results", "$tuple", 0, "fields", "value"), lambda v: v * 0.9), (("table", "$table", 1, 2, 0), lambda v: v * 0.9), (("table", "$table", 0, 2, 0), 0.5), (("design", "fields", "max_bias"), 0.1)],
    "hadamard-response": [(("items",), 1)],
    "independent-noise": [(("scales", "$array", 0), 0.0), (("sensitivities", "$array", 0), -1.0)],
    "integer-noise": [(("weights", "$tuple", 0), -1), (("decay", "$fraction"), "3/2"), (("change",), 0)],
    "integer-table": [(("counts", "$array", 0, 0), lambda n: n + 1), (("bins", "$array", 0), 9.0)],
    "itemwise-release": [(("items",), 0), (("users",), 0), (("channel", "fields", "space", "fields", "shape", "$tuple"), [2, 3])],
    "joint-noise": [(("noises", "$tuple", 0, "fields", "rounds"), 0), (("noises", "$tuple", 1, "fields", "sampling_rate"), 1.5)],
    "knorm-noise": [(("norm",), 3.0), (("dimension",), 0), (("gamma",), 1.5), (("gamma",), 0.4), (("cap",), 1.0), (("cap",), 4.0), (("widths",), {"$tuple": [1.0, 1.0]})],
    "linear-report": [(("weights", "$tuple", 0, "$tuple", 0), 0), (("workload", "fields", "blocks", "$tuple", 0, "$tuple", 0, "fields", "size"), 4)],
    "subset-report": [(("levels", "$tuple", 0), 1), (("sizes", "$tuple", 0), 30), (("shares", "$tuple", 0), 0), (("workload", "fields", "blocks", "$tuple", 0, "$tuple", 0, "fields", "size"), 4)],
    "linear-release": [(("delta",), 1e-6), (("norm",), 3.0), (("gaussian",), True), (("model",), "local")],
    "mixed-noise": [(("scales", "$array", 0), 0.0), (("laplace", "$array"), [True])],
    "planned-release": [(("neighbours",), "replace"), (("noises", "$tuple", 0, "fields", "dimension"), 4), (("noises", "$tuple", 0, "fields", "rounds"), 1), (("tasks", "$items", 1, 1, "fields", "contribution"), 2)],
    "priv-unit": [(("inputs",), "box")],
    "quantizer": [(("starts", "$array", 0, 0), lambda p: p + 1e-9), (("bins", "$array", 0), -2.5)],
    "rational-table": [(("starts", "$tuple", 0, "$tuple", 0, "$fraction"), "1/3")],
    "reduced-release": [(("samples",), 49), (("radius",), 1.0), (("failure",), 1.0)],
    "selection-law": [(("left", "$tuple", 1, "$tuple", 0), -1)],
    "strategy-noise": [(("strategy", "$array", 0), [0.0, 0.0, 0.0])],
    "vector-quantizer": [(("dimension",), 0), (("coordinate", "fields", "starts", "$array", 0, 0), 0.9)],
}  # fmt: skip


@pytest.mark.parametrize("kind", DOCTORED)
def test_what_does_not_fit_together_is_refused(kind: str) -> None:
    assert not refused(documents()[kind])
    for step in DOCTORED[kind]:
        assert refused(bent(kind, step)), step


KNOWN = {
    ("planned-release", "tasks.spent.values.samples[]"): "whose bias is claimed",
    ("frontier", "results[].mechanism.law.floors (length)"): "tables shown, near to twelve digits",
}
"""What the verifier believes of values that the package does not read, and why."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_the_package_does_not_read_the_verifier_does_not_believe(kind: str) -> None:
    """Any leaf more or less, of no size, of another sign or type, or in another order; lists cut and repeated, words that are others'."""
    payload = json.loads(documents()[kind])["payload"]
    if not believed(payload):
        return
    for leaf in trees.leaves(payload):
        if (kind, leaf.name) in KNOWN:
            continue
        made = [forged for _, forged in trees.alterations(random.Random(leaf.name), payload, leaf)]
        if leaf.path[-1] not in ("$fraction", "$float"):
            value = trees.at(payload, leaf.path)
            made += [
                trees.resized(payload, leaf.path, other) for other in trees.ELSEWHERE[type(value)](value)
            ]
        for forged in made:
            try:
                loads(cheap.sealed(forged))
            except md.MechdesignError:
                assert not believed(forged), leaf.name


def believed(payload: Any) -> bool:
    """Whether all claims hold, of which there are some."""
    try:
        return all(holds for *_, holds in rows(cheap.sealed(payload)))
    except (verify.NotCovered, verify.Refused):
        return False


def test_another_norm_is_another_claim() -> None:
    """Noise of a capped norm is as private, of changes that this norm measures: the claim names it."""
    (claim,) = [c for c, *_ in rows(bent("knorm-noise", (("cap",), 2.0))) if c.startswith("privacy loss")]
    (honest,) = [c for c, *_ in rows(documents()["knorm-noise"]) if c.startswith("privacy loss")]
    assert claim.startswith(honest) and "the sum of sizes over 2.0" in claim


def compared(asked: Any, privacy: Any, *names: str) -> Any:
    return md.compare(asked, privacy, mechanisms=list(names), progress=False)


def test_what_one_record_changes_is_said_of_every_file_that_has_bounds() -> None:
    result = md.Calibration("laplace", md.PureDP(1.0), md.Sensitivity(linf=1, l0=2), dimension=3).solve()
    replaced = md.NoiseAllocation("laplace", sensitivity(l0=2, neighbours="replace"), md.PureDP(0.7)).solve()
    for held, neighbours in ((result, "add-remove"), (replaced, "replace")):
        for part in (held, held.certificate, held.mechanism):
            claim = f"the change is what one record does ({neighbours}), as stated"
            assert (claim, "claimed", True) in rows(part)


def test_a_report_of_one_person_has_no_records() -> None:
    """Neither records nor neighbouring data sets are in the question of a table that each person draws from."""
    for of in ("person", "data"):
        P = md.Table([0, 1], [0, 1], of=of, neighbours="replace")
        result = md.Problem(md.Minimize(P.expected("error")), [P.private(md.PureDP(1.0))]).solve()
        said = [claim for claim, how, _ in rows(result) if how == "claimed"]
        assert said == ["the change is what one record does (replace), as stated"] * (of == "data")


def test_a_line_that_checks_nothing_does_not_begin_with_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = md.Calibration("laplace", md.PureDP(1.0), md.Sensitivity(linf=1, l0=2), dimension=3).solve()
    result.save(tmp_path / "file.json")
    assert verify.main([str(tmp_path / "file.json")]) == 0
    begun = {tuple(line.split()[:2]) for line in capsys.readouterr().out.splitlines()[:-1]}
    assert ("--", "claimed") in begun and {how for first, how in begun if first == "ok"} <= {
        "proved",
        "recomputed",
    }


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("optimal-quantizer", "proved"),
        ("knorm", "recomputed"),
        ("noise-allocation", "proved"),
        ("calibration", "claimed"),
    ],
)
def test_a_status_is_checked_no_better_than_what_it_rests_on(name: str, how: str) -> None:
    (status,) = [row for row in rows(dumps(cheap.solved(name))) if row[0].startswith("status")]
    assert status[0].startswith(("status 'optimal'", "status 'best of its class'"))
    assert status[1:] == (how, True)


def test_every_kind_that_is_checked_alone_is_doctored() -> None:
    others = {
        "random-directions",
        "result",
        "sampled-coordinates",
        "sampled-signs",
        "sphere-quantizer",
        "table-mechanism",
    }  # test_forged, test_verifier_oracles
    assert deployed() - others == {*DOCTORED}


def test_mechanisms_that_are_not_released_say_so() -> None:
    bare = md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1))
    unknown = noise.KNormNoise(3, 0.5, norm=2)
    for mechanism in (bare, unknown):
        with pytest.raises(verify.NothingToCheck, match="not released"):
            rows(mechanism)
    with pytest.raises(verify.NotCovered, match="hypsecant"):
        rows(md.AdditiveNoise(stats.hypsecant(), 1.0))


NAMED: dict[str, Callable[[], Any]] = {
    "biased selections": lambda: cheap.solved("biased-selection"),
    "histograms of users": lambda: cheap.solved("user-histogram"),
    "what shuffling hides": lambda: item_by_item(alpha=10.0),
    "comparisons of histograms of users": lambda: md.compare(
        md.HistogramOfUsers(clustered(), 2, 20), md.EMDPrivacy(5.0), progress=False
    ),
    "comparisons of reports of categories": lambda: md.compare(
        md.CategoryReport(categories=4), md.PureDP(1.0), progress=False
    ),
    "comparisons of means of clients": lambda: compared(
        md.LocalReport(bits=2, input_range=(-1, 1), clients=100), md.PureDP(1.0), "optimal, even outputs"
    ),
    "comparisons for listed changes": lambda: compared(
        md.NumericQuery(dimension=2, sensitivity=[[1.0, 0.0], [0.0, 1.0]]), md.PureDP(1.0), "k-norm"
    ),
}


@pytest.mark.parametrize("said", NAMED)
def test_what_is_not_covered_is_named(said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.json").write_text(dumps(NAMED[said]()), encoding="utf-8")
    assert verify.main([str(tmp_path / "file.json")]) == 2
    assert capsys.readouterr().out == f"not covered: {said}\n"


def test_a_comparison_that_begins_with_the_worst_is_refused() -> None:
    """It was accepted, and `best` was the worst."""
    mechanisms = ["laplace", "discrete_laplace", "gaussian"]
    found = md.compare(
        md.NumericQuery(integer=True), md.ApproximateDP(1.0, 1e-6), mechanisms=mechanisms, progress=False
    )
    payload = json.loads(dumps(found))["payload"]
    assert not refused(cheap.sealed(payload))
    for column in payload["fields"]["table"]["$table"]:
        column[2] = column[2][::-1]
    assert refused(cheap.sealed(payload))
