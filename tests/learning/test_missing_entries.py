"""What is no finite number, or becomes none by conversion, is refused before anything depends on it; numbers are taken however they are held."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mechdesign as md
from learning.test_counted import ESTIMATORS, X, Y, estimator
from mechdesign.learning import PrivateLogisticRegression

NONE = [
    *(None, np.nan, np.inf, pd.NA, pd.NaT, np.ma.masked, 1j, "seven", "0.5", b"0.5", [0.5], {"a": 1}),
    *(
        datetime.date(2020, 1, 1),
        pd.Timestamp("2020-01-01"),
        np.datetime64("2020-01-01"),
        np.timedelta64(1, "s"),
    ),
]
SENTENCE = "Complex data not supported, nor texts as numbers, nor dates"


def held(values: np.ndarray) -> list[Any]:
    """The same entries as an array of objects, in lists, and as pandas holds them."""
    frames = [pd.DataFrame(values), pd.DataFrame(values).convert_dtypes()]
    columns = [pd.Series(values), pd.Series(values).convert_dtypes()] if values.ndim == 1 else frames
    return [values, values.tolist(), *columns]


def with_one(values: np.ndarray, bad: Any) -> np.ndarray:
    found = values.astype(object)
    found.reshape(-1)[3] = bad
    return found


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("bad", NONE, ids=lambda bad: f"{type(bad).__name__} {bad}")
def test_one_such_entry_is_refused_in_one_sentence(name: str, bad: Any, tmp_path: Path) -> None:
    model = estimator(name, ledger=md.Ledger(tmp_path / "ledger.jsonl", md.ApproximateDP(9.0, 1e-3)))
    for x in held(with_one(X[:9], bad)):
        with pytest.raises(md.DataError, match=f"^X: must be finite numbers: .*{SENTENCE}"):
            model.fit(x, Y[:9])
    for y in held(with_one(Y[:9], bad)) if name != "PrivatePCA" else ():
        with pytest.raises(
            md.DataError, match=r"^y should be a 1d array of .*finite numbers|one of the classes|of the type"
        ):
            model.fit(X[:9], y)
    assert len(model.ledger.to_frame()) == 0


def test_what_is_masked_is_refused_and_what_is_not_is_taken() -> None:
    masked = np.ma.array(X[:9], mask=np.zeros((9, 2), dtype=bool))
    targets = np.ma.array(Y[:9], mask=np.arange(9) == 2)
    for model in map(estimator, ESTIMATORS):
        model.fit(masked, Y[:9])
        if hasattr(model, "predict"):
            with pytest.raises(md.DataError, match=SENTENCE):
                model.fit(X[:9], targets)
    masked[4, 1] = np.ma.masked
    for model in map(estimator, ESTIMATORS):
        for rows in (masked, list(masked)):
            with pytest.raises(md.DataError, match=SENTENCE):
                model.fit(rows, Y[:9])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_numbers_are_taken_however_they_are_held(name: str) -> None:
    def found(x: Any, y: Any) -> np.ndarray:
        model = estimator(name).fit(x, y)
        return model.components_ if name == "PrivatePCA" else model.coef_

    plain = found(X[:9], Y[:9])
    for x, y in zip(held(X[:9].astype(object)), held(Y[:9].astype(object)), strict=True):
        np.testing.assert_array_equal(found(x, y), plain)
    np.testing.assert_array_equal(found(X[:9] > 0, Y[:9]), found((X[:9] > 0) * 1.0, Y[:9]))


@pytest.mark.parametrize(
    "labels",
    [
        [None, "y"],
        ["n", None],
        ["n", np.nan],
        ["n", pd.NA],
        ["n", 1],
        ["n", "Y"],
        [0, 1],
        ["n", np.ma.masked],
        ["n", 1j],
    ],
)
@pytest.mark.parametrize("hold", [np.array, list, pd.Series], ids=["array", "list", "series"])
def test_a_label_that_is_missing_or_no_class_is_refused(labels: list[Any], hold: Any) -> None:
    model = PrivateLogisticRegression(privacy=md.ApproximateDP(1.0, 1e-6), bounds=(-1, 1), classes=["n", "y"])
    objects = np.empty(8, dtype=object)
    objects[:] = ["n", "y", "n", "y", "n", "n", *labels]
    with pytest.raises(md.DataError, match=r"^y"):
        model.fit(X[:8], objects if hold is np.array else hold(objects))
