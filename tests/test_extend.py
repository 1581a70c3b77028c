"""A mechanism of a contributor's own, from the one module for authors: bound, comparison, file, audit."""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mechdesign as md
from mechdesign import extend
from mechdesign.choose.candidates import candidates
from mechdesign.extend import Accuracy, Bound, Checked, Claim, Clock, Law, Proof, Protection, field
from mechdesign.shell.cli import app


@extend.serializable("test-geometric")
@dataclass(frozen=True)
class Geometric(Checked):
    q: Fraction = field(Fraction)

    @property
    def variance(self) -> Fraction:
        return 2 * self.q / (1 - self.q) ** 2

    def errors(self) -> Accuracy:
        return Accuracy(math.sqrt(self.variance), float(2 * self.q / (1 - self.q**2)), math.nan)


@extend.serializable("test-geometric-proof")
@dataclass(frozen=True, eq=False)
class GeometricProof(Proof):
    """q e^ε ≥ 1 is ε-differential privacy; P[±1] ≥ e^-ε P[0] for any integer noise, so that its variance is 2/(e^ε + 2)."""

    speaks_of = ("privacy", "value", "lower bound")

    def check(self, stated: md.Certificate) -> Iterator[Claim]:
        design = extend.instance("question", stated.question, Counting)
        law = extend.instance("law", stated.law, Geometric)
        spare = law.q * extend.exp_lower(design.privacy.epsilon) - 1
        yield Claim("privacy loss at most epsilon", extend.PROVED, float(spare), spare >= 0)
        room = Fraction(stated.value) - law.variance
        yield Claim("variance at most the value", extend.PROVED, float(room), room >= 0)
        left = 2 / (extend.exp_upper(design.privacy.epsilon) + 2) - Fraction(stated.lower_bound or 0.0)
        yield Claim("no integer noise has less", extend.PROVED, float(left), left >= 0)


@extend.serializable("test-counting")
@dataclass(frozen=True)
class Counting(extend.Design):
    asks = "numbers"
    privacy: md.PureDP = field(md.PureDP)
    sensitivity: float = field(check=extend.positive, default=1.0)

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        law = Geometric(Fraction(math.exp(-self.privacy.epsilon)) + Fraction(1, 2**50))
        yield Law(law, extend.round_up(law.variance), (GeometricProof(),))
        yield Bound(2 / (math.exp(self.privacy.epsilon) + 2) * (1 - 1e-12), GeometricProof())

    def protection(self) -> Protection:
        return Protection(1, md.Sensitivity(linf=self.sensitivity), integer=True)

    @property
    def mechanism_class(self) -> extend.MechanismClass:
        return extend.every("integer noise")

    def asked_by(self, question: object) -> bool:
        own = getattr(question, "scalar", None) == self.sensitivity
        return own and getattr(question, "loss", None) == "squared"


QUERY = md.NumericQuery(integer=True)


def test_a_proof_of_law_and_bound_stands_once() -> None:
    result = Counting(md.PureDP(1.0)).solve()
    assert len(result.proofs) == 1
    about = result.certificate.checks()["about"].tolist()
    assert about == ["mechanism"] * 3 + ["file"] and result.checks()["holds"].all()


def test_a_comparison_shows_the_bound_that_a_new_mechanism_proves() -> None:
    extend.register("counting", md.NumericQuery, lambda q, privacy: Counting(privacy, q.scalar))
    try:
        names = ["laplace", "counting"]
        found = md.compare(QUERY, md.PureDP(1.0), mechanisms=names, progress=False)
        assert "no integer noise does better" in str(found)
        assert found.least == found["counting"].lower_bound
        assert all(row.holds for row in found.agreements())
        absolute = md.NumericQuery(integer=True, loss="absolute")
        found = md.compare(absolute, md.PureDP(1.0), mechanisms=names, progress=False)
        assert found.least is None and "no lower bound for all of these is proved" in str(found)
    finally:
        candidates(QUERY).pop("counting")


def test_a_mechanism_of_a_module_is_compared_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_counting.py").write_text(
        "import mechdesign as md\n"
        "from mechdesign.extend import register\n"
        "register('own', md.NumericQuery, lambda q, privacy: md.Calibration('laplace', privacy, q.scalar))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    command = ["compare", "--epsilon", "1", "-s", "1", "-m", "own", "-m", "laplace"]
    try:
        assert CliRunner().invoke(app, command).exit_code != 0
        found = CliRunner().invoke(app, [*command, "--import", "own_counting"])
        assert found.exit_code == 0 and "own" in found.output, found.output
    finally:
        candidates(QUERY).pop("own", None)
