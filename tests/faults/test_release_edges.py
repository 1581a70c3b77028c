"""What leaves the machine: refusals and warnings that no single record decides, pooled counts, words of the wrong width."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.learning import (
    PrivacyLeakWarning,
    PrivateLogisticRegression,
    PrivatePCA,
)
from mechdesign.user_level import LinearQuery

DP = md.ApproximateDP(1.0, 1e-6)
USUAL = np.random.default_rng(5).uniform(-1, 1, (9, 2))
RECORDS = {
    "zeros": [0.0, 0.0],
    "least": [5e-324, -5e-324],
    "small": [1e-170, 1e-170],
    "large": [1e99, -1e-99],
    "too large": [1e150, 1.0],
    "largest": [-1.7e308, 1.7e308],
}
"""One record, by what may be said of it."""
BASES = {
    "usual": USUAL,
    "zeros": np.zeros((9, 2)),
    "constant": np.full((9, 2), 7.0),
    "one column constant": USUAL * [1.0, 0.0] + [0.0, 0.5],
    "one column zero": USUAL * [1.0, 0.0],
    "standard": (USUAL - USUAL.mean(axis=0)) / USUAL.std(axis=0),
    "within its range": (USUAL - USUAL.min(axis=0)) / np.ptp(USUAL, axis=0),
}
"""The other records."""


def data(name: str) -> list[np.ndarray]:
    """The records as they are, and with each other record in place of the first."""
    base = BASES[name]
    return [base, *(np.vstack([[record], base[1:]]) for record in RECORDS.values())]


def said_by(fit: Any, *data: Any) -> list[str]:
    """What a fit says in warnings, and in an error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fit(*data)
        except Exception as error:
            return [*(str(w.message) for w in caught), repr(error)]
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("labels", [["no", "no"], ["yes", "yes"], ["no", "yes"]])
def test_no_record_makes_a_classification_speak(labels: list[str]) -> None:
    y = np.array([labels[0]] * 8 + [labels[1]])
    for x in data("usual"):
        model = PrivateLogisticRegression(privacy=DP, bounds=(-1, 1), classes=["yes", "no"], random_state=0)
        assert said_by(model.fit, x, y) == []
        assert model.classes_.tolist() == ["no", "yes"] and set(model.predict(USUAL)) <= {"no", "yes"}


@pytest.mark.parametrize(
    ("classes", "last"),
    [(["no", "yes"], "No"), (["no", "yes"], ""), ([0, 1], 0.5), ([0, 1], 1e300), ([0, 1], -1)],
)
def test_a_label_that_is_no_class_is_refused(classes: list[Any], last: Any) -> None:
    model = PrivateLogisticRegression(privacy=DP, bounds=(-1, 1), classes=classes, random_state=0)
    assert said_by(model.fit, USUAL, [*classes] * 4 + [classes[0]]) == []
    with pytest.raises(md.DataError, match="every label must be one of the classes"):
        model.fit(USUAL, [*classes] * 4 + [last])


def test_classes_that_are_read_from_the_labels_are_a_leak() -> None:
    y = np.where(USUAL[:, 0] > 0, "yes", "no")
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        PrivateLogisticRegression(privacy=DP, bounds=(-1, 1)).fit(USUAL, y)
    for bad in (["yes"], ["yes", "yes"], ["a", "b", "c"], [0, 1], [["yes", "no"]], 3):
        with pytest.raises(md.DesignError, match="classes"):
            PrivateLogisticRegression(privacy=DP, bounds=(-1, 1), classes=bad).fit(USUAL, y)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("center", [None, [0.5, -1e308]])
def test_no_record_makes_principal_components_speak(base: str, center: Any) -> None:
    noise = PrivatePCA(privacy=DP, norm=1.0).fit(USUAL).privacy_
    for x in [*data(base), BASES[base][:1]]:
        model = PrivatePCA(privacy=DP, norm=1.0, center=center, noise=noise)
        assert said_by(model.fit, x) == [] and np.isfinite(model.second_moments_).all()


LINE = md.MetricSpace.line([0.0, 1.0, 2.0])


@pytest.mark.parametrize("options", [{}, {"gaussian": True, "delta": 1e-6}])
def test_pooled_counts_need_equal_sizes(options: dict[str, Any]) -> None:
    """One person with 100,000 items and seven with 30 would move the pooled mean by nearly all of it."""
    release = md.LinearRelease(LinearQuery.histogram(LINE), alpha=1e9, users=8, **options)
    for counts in ([100_000, 110, 100], [10, 10, 4], [8, 0, 0]):
        with pytest.raises(md.DesignError, match="sizes"):
            release.release(counts)
    for sizes in ([100_000] + [30] * 7, [3] * 7, [2] * 8, 2, 0, 3.5, "3"):
        with pytest.raises(md.DesignError, match="sizes"):
            release.release([10, 10, 4], sizes=sizes)
    for sizes in (3, [3] * 8):
        assert release.release([10, 10, 4], sizes=sizes) == pytest.approx(
            [10 / 24, 10 / 24, 1 / 6], abs=100 * release.scale
        )


def test_what_is_not_pooled_needs_no_sizes() -> None:
    query = LinearQuery.histogram(LINE)
    central = md.LinearRelease(query, alpha=1e9, users=2)
    for given in ([0.5, 0.25, 0.25], [0, 1, 0], [[100, 0, 0], [0, 1, 1]]):
        assert central.release(given).shape == (3,)
        with pytest.raises(md.DesignError, match="sizes"):
            central.release(given, sizes=3)
    assert md.LinearRelease(query, alpha=1e9).release([5, 1, 1]).shape == (3,)
    assert md.LinearRelease(query, alpha=1e9, model="local").release([5, 1, 1]).shape == (3,)


def test_other_releases_of_several_users_take_no_pooled_counts() -> None:
    items = md.ItemwiseRelease(LINE, item_alpha=1.0, items=3, users=8, accounting="composition")
    for pooled in ([10, 10, 4], [[0] * 24], [[0] * 30] + [[0]] * 7):
        with pytest.raises(md.DesignError):
            items.release(pooled)
    with pytest.raises(md.DesignError, match="must sum to 1"):
        md.user_level.LaplaceHistogram(LINE, 1.0, users=8).release([10, 10, 4])


HEADER = md.vectors.c_header(
    md.vectors.IntegerTable.of(md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)))
)
WORDS = {
    "bytes": ("quantizer_word w = {{1, 2, 3, 4, 5, 6, 7, 8}};", "w", True),
    "32 bits": ("uint32_t w = 7;", "w", False),
    "64 bits": ("uint64_t w = 7;", "w", False),
    "what rand() gives": ("int w = 7;", "w", False),
    "made of a number": ("uint32_t w = 7;", "(quantizer_word){w}", False),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_word_of_the_wrong_type_does_not_compile(name: str, tmp_path: Path) -> None:
    """A number of 32 bits was widened without a word, and every output was then the same."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    made, given, compiles = WORDS[name]
    (tmp_path / "quantizer.h").write_text(HEADER)
    (tmp_path / "main.c").write_text(
        f'#include "quantizer.h"\nint main(void) {{ {made} '
        f"return quantizer_decode(quantizer_encode(0.5, {given})) > 9; }}\n"
    )
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.c", "-o", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == compiles, done.stderr


def optm_search(**levels: Any) -> md.OPTMSearch:
    bins = md.Grid(delta=[2.0], inner=[0.5])
    return md.OPTMSearch(md.PureDP(1.0), stats.uniform(-1, 2), bins=bins, levels=md.Grid(**levels))


def test_a_search_ends_at_the_width_of_its_best_point() -> None:
    """Solved again at the first width of the grid, the winner of the second was "infeasible"."""
    best = [optm_search(level=[0.64, 0.65], width=w).solve() for w in ([0.01, 0.05], [0.05, 0.01])]
    assert best[0].value == best[1].value == pytest.approx(best[0].table["value"].min())
    assert best[0].table.loc[0, "width"] == 0.05


def test_a_misspelt_axis_is_refused() -> None:
    with pytest.raises(md.DesignError, match="wdth"):
        optm_search(level=[0.65], wdth=[0.05])
    with pytest.raises(md.DesignError, match="levl_right"):
        optm_search(level=[0.65]).at((-3.0, -0.5, 0.5, 3.0), md.Grid(level=[0.65], levl_right=[0.6])).solve()


@pytest.mark.parametrize("noise", ["gaussian", "osgt", "discrete_gaussian", "gennorm", "flipped_huber"])
def test_numpy_may_be_asked_to_raise(noise: str) -> None:
    """Tails that end in zeros are no error, whatever `np.seterr` says."""
    with np.errstate(all="raise"):
        found = md.calibrate(noise=noise, privacy=DP, sensitivity=1.0)
        assert found.checks()["holds"].all() and md.accuracy(found).standard_deviation > 0


@pytest.mark.parametrize("centre", [0.0, 3.7, 10.0, -120.0])
@pytest.mark.parametrize("certify", [True, False])
def test_a_bias_is_allowed_wherever_the_range_is(centre: float, certify: bool) -> None:
    """Knots that differ about 0 are one double far from it: "knots must increase strictly"."""
    bins = [centre - 7, centre - 0.3, centre + 0.1, centre + 7]
    design = md.OptimalQuantizer(bins, md.PureDP(1.0), stats.uniform(centre - 1, 2), max_bias=0.1)
    found = design.solve(certify=certify)
    about_zero = md.OptimalQuantizer(
        [-7, -0.3, 0.1, 7], md.PureDP(1.0), stats.uniform(-1, 2), max_bias=0.1
    ).solve()
    assert found.value == pytest.approx(about_zero.value, rel=1e-9)
    assert not certify or found.checks()["holds"].all()
    assert (found.certificate is not None) == certify
