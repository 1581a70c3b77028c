"""The stand-alone verifier: against the package's own verification on sound, damaged and doctored files."""

from __future__ import annotations

import ast
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
import pytest
from campaign import files, trees
from scipy import stats

import mechdesign as md
from mechdesign.evidence import exact
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.proofs import RowsBound
from mechdesign.evidence.results import OF_SEARCH
from mechdesign.evidence.serialize import KINDS, dumps, encode, loads
from mechdesign.quantizers.proofs import QuantizerProof
from mechdesign.verifier import archive, arithmetic, verify
from mechdesign.verifier.knorm import Planes


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
    """Work is allowed, and claims are printed for programs."""
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


def numbered(claims: Iterable[str], measured: Container[str]) -> list[str]:
    """Claims that name a number and have no margin, but for two that say on what a law is, or for what."""
    number = re.compile(r"(?<![\w.])\d")
    said = "a coordinate's law is one, on [-1, 1]", "each unit is noise for a change of 1"
    return [
        c
        for c in claims
        if number.search(re.sub(r"\(\d+ of \d+\)", "", c)) and c not in measured and not c.startswith(said)
    ]


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


def least(objective: Any, *rows: Any) -> md.Result:
    return md.Problem(md.Minimize(objective), rows).solve()


TABLE, NOISE, SCALES = (
    md.Table([0, 1, 2, 3], [0, 1, 2]),
    md.LatticeNoise(1, 6, integer=True),
    md.Scales([1e-3] * 4),
)
SCALED = [
    SCALES.private(md.GaussianDP(2.471613158944941)),
    SCALES.private(md.GaussianDP(0.5824889673364775), md.Sensitivity(each=[1e-3] * 4, l0=1)),
]
TIGHT: dict[str, Callable[[], md.Result]] = {
    "no ε": lambda: least(TABLE.worst(), TABLE.private(md.MembershipAdvantage(2.3e-13))),
    "categories nearly alike": lambda: md.LocalWorkload([[2, 2, 0]], md.PureDP(0.27), data="worst").solve(),
    "scales alike": lambda: least(SCALES.expected("squared", [1, 0.1, 100, 2]), *SCALED, SCALES[0] == SCALES[1]),
    "steep noise": lambda: least(NOISE.expected(), NOISE.private(md.ApproximateDP(12.0, 0.5))),
}  # fmt: skip


@pytest.mark.parametrize("name", TIGHT)
def test_what_is_kept_to_the_last_digit_holds(name: str) -> None:
    assert outcome(dumps(TIGHT[name]())) == "holds"


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
        replace(p, rows=p.rows[:0], multipliers=()) if isinstance(p, RowsBound) else p for p in result.proofs
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
            spike=(spike := 0 if tails else rng.choice([0, 3])),
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
    rows += [[x + rng.randint(-1, 1) for x in row] for row in rows]
    points = [[unit * Fraction(rng.gauss(0, 1)) for _ in range(4)] for _ in range(20)]
    largest = max(abs(sum(a * x for a, x in zip(row, point))) for row in rows for point in points)
    assert Planes({"planes": rows}).most(points) == largest / 2**24


def test_an_interrupt_is_answered_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "file.json")
    words = [sys.executable, "-m", "mechdesign.verifier", str(path)]
    child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    with child, open(path, "w"):  # it has opened the file, and waits for its text
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (130, "error: interrupted\n")


# -- Every kind of file: several results together, and what claims nothing


SEVERAL = {"certificate", "comparison", "frontier", "result"}


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
    text = cheap.documents()[kind]
    (tmp_path / "file.json").write_text(text, encoding="utf-8")
    code = verify.main([str(tmp_path / "file.json")])
    if kind in SEVERAL:
        assert code == 0 and rows(text)
    elif kind in verify.CHECKS:
        assert code == 1
        with pytest.raises(verify.Refused, match="nothing is claimed"):
            verify.verify(text)
    else:
        assert code == 2
        with pytest.raises(verify.NothingToCheck, match="claims nothing"):
            verify.verify(text)


def bent(kind: str, *steps: tuple[tuple[Any, ...], Any]) -> str:
    """The file of a kind, with other values at some places, sealed anew."""
    payload = json.loads(cheap.documents()[kind])["payload"]
    for path, value in steps:
        place = ("fields", *path)
        payload = trees.put(payload, place, value(trees.at(payload, place)) if callable(value) else value)
    return cheap.sealed(payload)


DOCTORED: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "certificate": [(("value",), lambda v: v * 0.9), (("lower_bound",), lambda v: v * 1.01)],
    "comparison": [(("results", "$items", 0, 1, "fields", "value"), lambda v: v * 0.9), (("results", "$items", 0, 0), "other"), (("privacy", "fields", "epsilon"), 0.5), (("least",), 7.9)],
    "frontier": [(("results", "$tuple", 0, "fields", "value"), lambda v: v * 0.9), (("table", "$table", 1, 2, 0), lambda v: v * 0.9), (("table", "$table", 0, 2, 0), 0.5), (("results", "$tuple", 0, "fields", "duals", "$table", 0, 0), 2**63), (("design", "fields", "max_bias"), 0.1)],
}  # fmt: skip


@pytest.mark.parametrize("kind", DOCTORED)
def test_what_does_not_fit_together_is_refused(kind: str) -> None:
    assert not refused(cheap.documents()[kind])
    for step in DOCTORED[kind]:
        assert refused(bent(kind, step)), step


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", sorted(SEVERAL))
def test_what_the_package_does_not_read_the_verifier_does_not_believe(kind: str) -> None:
    """Any leaf more or less, of no size, of another sign or type, or in another order; lists cut and repeated, words that are others'.

    Of what holds results its own leaves: those of a result are altered in its own file, and here in a certificate.
    """
    payload = json.loads(cheap.documents()[kind])["payload"]
    assert believed(payload)
    for leaf in trees.leaves(payload):
        if leaf.owner != kind != "certificate":
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


def compared(asked: Any, privacy: Any, *names: str) -> Any:
    return md.compare(asked, privacy, mechanisms=list(names), progress=False)


def test_what_one_record_changes_is_said_of_every_file_that_has_bounds() -> None:
    result = md.Calibration("laplace", md.PureDP(1.0), md.Sensitivity(linf=1, l0=2), dimension=3).solve()
    replaced = md.NoiseAllocation(
        "laplace", md.Sensitivity(each=[1.0, 2.0, 1.5], l0=2, neighbours="replace"), md.PureDP(0.7)
    ).solve()
    for held, neighbours in ((result, "add-remove"), (replaced, "replace")):
        for part in (held, held.certificate):
            claim = f"the change is what one record does ({neighbours}), as stated"
            assert (claim, "claimed", True) in rows(part)


def test_a_report_of_one_person_has_no_records() -> None:
    """Neither records nor neighbouring data sets are in the question of a table that each person draws from."""
    for of in ("person", "data"):
        P = md.Table([0, 1], [0, 1], of=of, neighbours="replace")
        result = md.Problem(md.Minimize(P.expected("error")), [P.private(md.PureDP(1.0))]).solve()
        said = [claim for claim, how, _ in rows(result) if how == "claimed"]
        assert said == ["the change is what one record does (replace), as stated"] * (of == "data")


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


NAMED: dict[str, Callable[[], Any]] = {
    "biased selections": lambda: cheap.solved("biased-selection"),
    "histograms of users": lambda: cheap.solved("user-histogram"),
    "comparisons of histograms of users": lambda: md.compare(
        md.HistogramOfUsers(md.MetricSpace.clustered(2, 2, within=0.1), 2, 20),
        md.EMDPrivacy(5.0),
        progress=False,
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
