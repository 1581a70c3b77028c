"""Tables that somebody else printed: exact audit, bounds against another solver, files with faults."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import mechdesign as md
from mechdesign.evidence import files
from mechdesign.quantizers.printed_table import _least
from mechdesign.shell.cli import app
from tests.programs import least_table

X = np.linspace(-1, 1, 5)
RQM = md.Quantizer.rqm(bins=[-2.7, -0.9, 0.9, 2.7], q=0.22, input_range=(-1, 1))


def test_the_table_of_rqm_as_printed():
    found = md.audit_table(RQM.probabilities(X), X, RQM.bins, md.PureDP(1))
    assert found.holds and 0.998 < found.epsilon < 1
    assert found.delta == 0
    assert found.value == pytest.approx(
        sum(RQM.expected_loss([v, v + 1e-12], "squared") for v in X[:-1]) / 5
        + RQM.expected_loss([1, 1 - 1e-12], "squared") / 5,
        rel=1e-9,
    )
    best = md.MetricQuantizer(RQM.bins, md.PureDP(1), X, "squared", inputs=X).solve()
    assert found.lower_bound == pytest.approx(best.lower_bound, rel=1e-6)
    assert found.lower_bound_same_bias == pytest.approx(found.lower_bound, rel=1e-6)
    assert found.distance == pytest.approx(found.value / best.value - 1, rel=1e-4)
    beside = found.best.solve()
    assert beside.value == pytest.approx(found.lower_bound, rel=1e-9) and beside.certificate.verify()


@pytest.mark.slow
@settings(max_examples=15, deadline=None)  # each is audited twice, by two linear programs
@given(st.integers(2, 4), st.integers(2, 4), st.integers(0, 10**6), st.floats(0.2, 3), st.floats(0, 0.3))
def test_slacks_and_losses_are_those_of_fractions(n, m, seed, epsilon, delta):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 100, (n, m))
    table = [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]
    x, y = np.arange(n), 3.0 * np.arange(m) - 1
    pure = md.audit_table(table, x, y, md.PureDP(epsilon))
    ratio = max(a[j] / b[j] for a in table for b in table for j in range(m))
    assert math.exp(pure.epsilon) == pytest.approx(float(ratio), rel=1e-12)
    assert pure.epsilon >= math.log(ratio) - 1e-15 and pure.holds == (ratio <= Fraction(math.exp(epsilon)))
    excess = max(
        sum(max(float(p) - math.exp(epsilon) * float(q), 0) for p, q in zip(a, b, strict=True))
        for a in table
        for b in table
    )
    assert pure.delta == pytest.approx(excess, abs=1e-14)
    asked = md.ApproximateDP(epsilon, delta) if delta else md.PureDP(epsilon)
    assert md.audit_table(table, x, y, asked).holds == (excess <= delta) or abs(excess - delta) < 1e-12


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(2, 5), st.integers(0, 10**6), st.floats(0.5, 3))
def test_the_best_is_that_of_another_solver(n, m, seed, epsilon):
    rng = np.random.default_rng(seed)
    table = rng.integers(1, 50, (n, m))
    table = [[Fraction(int(w), int(row.sum())) for w in row] for row in table]
    x, y = np.sort(rng.choice(np.arange(-8, 9), n, replace=False)) / 8, np.linspace(-4, 4, m)
    found = md.audit_table(table, x, y, md.PureDP(epsilon))
    cost = (y[None, :] - x[:, None]) ** 2
    losses = dict.fromkeys(permutations(range(n), 2), epsilon)
    for bound, bias in (
        (found.lower_bound, np.zeros(n)),
        (found.lower_bound_same_bias, found.biases["bias"].to_numpy()),
    ):
        least = least_table(cost, losses, prior=np.full(n, 1 / n), means=(y, x + bias))
        assert (bound is None) == (least is None)
        if bound is not None:
            assert bound <= least * (1 + 1e-8) and bound == pytest.approx(least, rel=1e-5)


def test_what_means_are_off_by_lowers_the_bound():
    """Widened data: the bound of means off by up to 1e-3 is at most the optimum of each of 40 choices inside, either way."""
    outputs, rng = np.linspace(-4, 4, 4), np.random.default_rng(0)
    P = md.Table(X, outputs)
    problem = md.Problem(md.Minimize(P.expected("squared")), [P.private(md.PureDP(1.0)), P.unbiased(list(X))])
    for side in (-1, 1):
        widened = [Fraction(x) + side * Fraction(1, 1000) for x in X]
        bound, _ = _least(problem, widened, None, "")
        for share in rng.uniform(0, 1, (20, len(X))):
            inside = md.Problem(
                problem.objective, [problem.constraints[0], P.unbiased(list(X + side * share / 1000))]
            )
            assert bound <= inside.solve(certify=False).value


def test_digits_that_are_printed_leave_room():
    table = [[0.7311, 0.2689], [0.2689, 0.7311]]
    found = md.audit_table(table, [-1, 1], [-2.2, 2.2], md.PureDP(1))
    assert not found.holds and found.constraints["rounding"].all()
    assert "digits printed leave room" in str(found)
    worse = md.audit_table([[0.74, 0.26], [0.26, 0.74]], [-1, 1], [-2.2, 2.2], md.PureDP(1), rounding=1e-4)
    assert not worse.constraints.query("family == 'privacy'")["rounding"].any()


def test_an_output_that_gives_an_input_away():
    found = md.audit_table([[1, 0], [0.5, 0.5]], [0, 1], [0, 2], md.PureDP(3))
    assert found.epsilon == math.inf and not found.holds and found.delta == 0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,-2,2\n-1,.6,.4\n1,.4\n", "line 3"),
        ("x,-2,2\n-1,.6,.4\n-1,.4,.6\n", "inputs = -1.0: stands there twice"),
        ("x,-2,2\n-1,.6,.4\n", "has 2 lines"),
        ("x;-0,5;0,5\n-1;51,4%;48,6%\n1;48,6%;51,4%\n", "separated by semicolons.*decimal commas"),
        ("A title\nx;-2;2\n-1;0.6;0.4\n1;0.4;0.6\n", "separated by semicolons"),
    ],
)
def test_files_with_faults_are_named_by_row_and_column(tmp_path, text, words):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(md.DesignError, match=words):
        md.audit_table(path, privacy=md.PureDP(1))
    answer = CliRunner().invoke(app, ["audit", str(path), "--epsilon", "1"])
    assert answer.exit_code != 0


def test_all_faults_of_a_file_are_named_at_once(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x,-2,2\n-1,.6,abc\n0,.5\n1,,-.2\n2,.5,.7\n3,.5,.5\n")
    with pytest.raises(md.DesignError) as error:
        md.audit_table(path, privacy=md.PureDP(1))
    for words in (
        "5 faults",
        "line 3",
        "'abc'",
        "output -2 at input 1 is missing",
        "is -0.2",
        "input 2 sum to 1.2",
    ):
        assert words in str(error.value)
    path.write_text("low,-2,up\n-1,.6,.4\nhigh,.4,.6\n")
    with pytest.raises(md.DesignError, match=r"'high'.*'up'"):
        md.audit_table(path, privacy=md.PureDP(1))
    path.write_text("x,-2,2\n" + "".join(f"{k},.6,.6\n" for k in range(50)))
    with pytest.raises(md.DesignError, match=r"50 faults: .*; and 30 more"):
        md.audit_table(path, privacy=md.PureDP(1))


def test_a_file_as_others_write_them(tmp_path):
    """A title, percent, and the inputs in another column: the same audit as of the plain table."""
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    plain.write_text("x,-2,2\n-1,.73,.27\n1,.270,.730\n")
    other.write_text('"A paper, table 3"\n\n,no.,input,-2,2\n,1,-1,73%,27 %\n,2,1,27.0,73.0\n')
    options = {"skip": 2, "percent": True, "index": "input"}
    one, two = (
        md.audit_table(plain, privacy=md.PureDP(1)),
        md.audit_table(other, privacy=md.PureDP(1), **options),
    )
    assert str(one) == str(two) and one.rounding == two.rounding == 0.0005
    shell = ["--epsilon", "1", "--skip", "2", "--percent", "--index", "input"]
    answers = [
        CliRunner().invoke(app, ["audit", *given])
        for given in ([str(plain), "--epsilon", "1"], [str(other), *shell])
    ]
    assert answers[0].stdout == answers[1].stdout and answers[1].exit_code == 0
    for wrong in ({"skip": -1}, {"percent": 2}, {"index": "inputs"}, {"skip": 9}):
        with pytest.raises(md.DesignError, match=next(iter(wrong)) if wrong != {"skip": 9} else "lines"):
            md.audit_table(other, privacy=md.PureDP(1), **options | wrong)


def test_the_same_from_frame_and_file(tmp_path):
    frame = pd.DataFrame(RQM.probabilities(X).round(6), index=X, columns=RQM.bins)
    frame.to_csv(tmp_path / "table.csv")
    one = md.audit_table(frame, privacy=md.PureDP(0.9))
    two = md.audit_table(tmp_path / "table.csv", privacy=md.PureDP(0.9))
    assert str(one) == str(two) and not one.holds
    answer = CliRunner().invoke(
        app, ["audit", str(tmp_path / "table.csv"), "--epsilon", "0.9", "--csv", str(tmp_path / "o.csv")]
    )
    assert answer.exit_code == 1 and "NOT kept" in answer.stdout
    assert len(pd.read_csv(tmp_path / "o.csv")) == len(one.constraints)
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "table.csv"), "--epsilon", "1"]).exit_code == 0


def test_decimals_are_what_they_say_and_nests_are_no_numbers():
    table = [[Decimal("0.74"), Decimal("0.26")], [Decimal("0.26"), Decimal("0.74")]]
    assert md.audit_table(table, [-1, 1], [-2.2, 2.2], md.PureDP(1.05)).holds
    for cell in (np.array([0.7, 0.1]), [0.74]):
        with pytest.raises(md.DesignError, match="which is no number"):
            md.audit_table([[cell, 0.26], [0.26, 0.74]], [-1, 1], [-2.2, 2.2], md.PureDP(1.0))


def test_files_hold_numbers_without_underscores_and_end(tmp_path, monkeypatch):
    (tmp_path / "table.csv").write_text(",0,1\n1,0.5,0.5\n1_2,0.5,0.5\n")
    with pytest.raises(md.DesignError, match="'1_2': must be a number"):
        md.audit_table(tmp_path / "table.csv", privacy=md.PureDP(1.0))
    monkeypatch.setattr(files, "LIMIT", 10)
    with pytest.raises(md.DesignError, match="more than 10 characters"):
        md.audit_table(tmp_path / "table.csv", privacy=md.PureDP(1.0))
