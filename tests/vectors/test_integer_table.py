"""The integer table: exact privacy, small bias, and C that draws as Python does, word for word."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence.exact import exp_lower
from mechdesign.vectors.export import alias_columns, rounded_counts
from mechdesign.vectors.sampled import two_outputs

MADE: dict[str, Any] = {
    "rqm": lambda: md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)),
    "optimum": lambda: (
        md.OptimalQuantizer(np.linspace(-3, 3, 13), md.PureDP(2.0), stats.uniform(-1, 2)).solve().mechanism
    ),
    "two": lambda: two_outputs(0.3),
    "far": lambda: md.Quantizer.rqm([997.3, 999.1, 1000.9, 1002.7], 0.22, (999, 1001)),
}
TABLES = {name: md.vectors.IntegerTable.of(made()) for name, made in MADE.items()}
REPORT = md.LocalWorkload(md.Workload.prefix_sums(5), md.PureDP(1.0)).solve().mechanism


@pytest.mark.parametrize("name", TABLES)
def test_the_budget_is_kept_in_integers(name: str) -> None:
    quantizer, table = MADE[name](), TABLES[name]
    exact = quantizer.certified().law.ratio()
    for column in table.counts.T.tolist():
        assert Fraction(max(column), min(column)) <= exact
    assert table.privacy_loss() <= quantizer.certified().privacy_loss()
    assert table.bias() <= 1e-8 * max(1.0, float(np.abs(table.bins).max()))
    assert np.abs(table.bins - quantizer.bins).max() <= 1e-6 * max(1.0, float(np.abs(table.bins).max()))


def test_a_smaller_budget_is_kept_or_refused() -> None:
    quantizer = MADE["rqm"]()
    loss = quantizer.certified().privacy_loss()
    near = md.vectors.IntegerTable.of(quantizer, epsilon=loss - 1e-7)
    ratios = [Fraction(max(c), min(c)) for c in near.counts.T.tolist()]
    assert max(ratios) <= exp_lower(loss - 1e-7)
    with pytest.raises(md.DesignError, match="epsilon"):
        md.vectors.IntegerTable.of(quantizer, epsilon=0.9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20).filter(any))
def test_alias_columns_have_the_counts(weights: list[int]) -> None:
    total = sum(weights)
    counts = rounded_counts([Fraction(w, total) for w in weights])
    assert sum(counts) == 1 << 32
    assert all(abs(n - Fraction(w << 32, total)) <= 1 for n, w in zip(counts, weights))
    columns = 1 << max((len(weights) - 1).bit_length(), 1)
    threshold, alias = alias_columns(counts, columns)
    found = [0] * columns
    for j in range(columns):
        found[j] += threshold[j]
        found[alias[j]] += (1 << 32) // columns - threshold[j]
    assert found == counts + [0] * (columns - len(counts))


@pytest.mark.parametrize("name", TABLES)
def test_draws_have_the_quantizers_law(name: str) -> None:
    quantizer, table = MADE[name](), TABLES[name]
    lower, upper = table.knots_range
    for place in (0.0, 0.37, 1.0):
        x = lower + place * (upper - lower)
        codes = table.codes(np.full(40_000, x)).ravel()
        wanted = quantizer.probabilities(x) * codes.size
        found = np.bincount(codes, minlength=len(wanted))
        assert stats.chisquare(found, wanted / wanted.sum() * found.sum()).pvalue > 1e-6


def test_reports_of_a_category() -> None:
    """Private in integers, drawn by a whole number's own row, decoded without bias by the rounded law; the header says what it takes."""
    table = md.vectors.IntegerTable.of_weights(REPORT.weights, epsilon=1.0)
    counts = table.counts[::2].tolist()
    assert table.categories == 5 and all(sum(row) == 2**32 for row in counts)
    assert max(Fraction(max(c), min(c)) for c in zip(*counts)) <= exp_lower(1.0) and table.privacy_loss() <= 1
    server = md.channels.LinearReport(REPORT.workload, counts)
    assert (
        server.variance == pytest.approx(REPORT.variance, rel=1e-6) and server.epsilon == table.privacy_loss()
    )
    for x in (0, 4):
        found = np.bincount(table.codes(np.full(40_000, float(x))).ravel(), minlength=REPORT.outputs)
        assert stats.chisquare(found, np.array(counts[x]) / 2**32 * 40_000).pvalue > 1e-6
    text = md.vectors.c_header(table, name="hours")
    assert "x is a category, 0 to 4" in text and "Bias" not in text
    assert json.loads(md.vectors.flat_json(table))["knots"] == [0, 1, 2, 3, 4, 5]
    assert TABLES["rqm"].categories is None
    for bad, said in (
        ([[1, 2], [3]], "one length"),
        ([[0, 0], [1, 2]], "not all 0"),
        ([[0, 1], [1, 1]], "infinite"),
    ):
        with pytest.raises(md.DesignError, match=said):
            md.vectors.IntegerTable.of_weights(bad)
    with pytest.raises(md.DesignError, match="at least the law's own"):
        md.vectors.IntegerTable.of_weights(REPORT.weights, epsilon=0.9)


def test_scalars_as_messages() -> None:
    table = TABLES["optimum"]
    x = np.linspace(-1, 1, 5001)
    message = table.encode(x)
    assert len(message) < 5001 / 2 + 64
    assert np.abs((table.decode(message) - x).mean()) < 0.1
    total, count = table.aggregate([message, message])
    assert count == 10_002 and total[0] == pytest.approx(2 * table.decode(message).sum())
    assert table.release([[0.5, -0.5]]).shape == (1, 2)
    for bad in ([math.nan], [2.0], ["a"], None):
        with pytest.raises(md.DesignError):
            table.encode(bad)
    with pytest.raises(md.ResultFormatError):
        table.decode(message[:-3])


def test_tables_that_are_refused() -> None:
    table = TABLES["rqm"]
    for changes in (
        {"counts": table.counts + 1},
        {"knots": table.knots[::-1].copy()},
        {"bins": table.bins[:-1]},
        {"knots": np.arange(len(table.knots)) * 5e-324},
    ):
        fields = {"knots": table.knots, "counts": table.counts, "bins": table.bins, **changes}
        with pytest.raises(md.DesignError):
            md.vectors.IntegerTable(**fields)
    with pytest.raises(md.DesignError):
        md.vectors.IntegerTable.of("x")  # type: ignore[arg-type]
    for bad in ("a b", "1a", "", 3):
        with pytest.raises(md.DesignError, match="name"):
            md.vectors.c_header(table, name=bad)  # type: ignore[arg-type]
    with pytest.raises(md.DesignError, match="words"):
        table.draw([0.0], np.zeros(1))


@pytest.mark.parametrize(
    "mechanism",
    [
        md.SphereQuantizer(9, 3, md.PureDP(1.0)),
        md.SampledCoordinates(9, 3, md.PureDP(1.0)),
        TABLES["two"],
        MADE["rqm"](),
        md.CoordinateQuantizer(MADE["two"](), 3, 0.5),
    ],
)
def test_flat_json_is_flat(mechanism: Any) -> None:
    flat = json.loads(md.vectors.flat_json(mechanism))
    assert flat["format"] == "mechdesign-flat" and flat["epsilon"] <= 1.0
    assert all(not isinstance(v, dict) for v in flat.values())
    assert all(not isinstance(w, (dict, list)) for v in flat.values() if isinstance(v, list) for w in v)
