"""What every estimator shares: its entry in a ledger, clips from declared bounds, bars of progress; and an enemy's data."""

import datetime
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

import mechdesign as md
from mechdesign import learning

DP = md.ApproximateDP(0.5, 1e-6)
RNG = np.random.default_rng(4)
X = RNG.uniform(-1, 1, (300, 2))
Y = np.sign(X[:, 0] + 0.1)
BOUNDED: dict[str, Any] = {"privacy": DP, "bounds": (-1, 1), "random_state": 0}
ESTIMATORS: dict[str, dict[str, Any]] = {
    "PrivateLinearRegression": {**BOUNDED, "target_bounds": (-1, 1)},
    "PrivateLogisticRegression": {**BOUNDED, "classes": [-1.0, 1.0], "steps": 5},
    "PrivateGeneralizedLinearRegression": {**BOUNDED, "target_bounds": (-1, 1), "threshold": 0.3, "steps": 5},
    "PrivateGeneralizedLinearRegression of counts": {**BOUNDED, "loss": "poisson", "target_bounds": (0, 3), "steps": 5},
    "PrivatePCA": {"privacy": DP, "bounds": 1.5, "random_state": 0},
}  # fmt: skip
"""All, with what is public of the data above."""
EXPECTED_FAILURES = {
    "check_dtype_object": "an entry that is no number is a DataError, no TypeError",
    "check_estimators_empty_data_messages": "the message would quote the number of records",
    "check_n_features_in_after_fitting": "the message would quote the number of columns that are given",
    "check_dataframe_column_names_consistency": "the message would quote the names that are given",
}
"""Checks of scikit-learn's that are expected to fail, with the reason why."""
every = pytest.mark.parametrize("name", ESTIMATORS)


def estimator(name: str, **changes: Any) -> Any:
    return getattr(learning, name.split()[0])(**{**ESTIMATORS[name], **changes})


def test_none_is_left_out() -> None:
    assert {name for name in learning.__all__ if hasattr(getattr(learning, name), "fit")} == {
        name.split()[0] for name in ESTIMATORS
    }


@every
def test_scikit_learn_accepts_it_with_bounds(name: str) -> None:
    model = estimator(name).set_params(**({} if name == "PrivatePCA" else {"bounds": (-9.0, 9.0)}))
    if "classes" in model.get_params():
        model.set_params(classes=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(model, expected_failed_checks=EXPECTED_FAILURES, on_skip=None)
    assert sum(r["status"] == "passed" for r in found) > 30
    tags = model.__sklearn_tags__()
    assert tags.non_deterministic
    assert all(kind.poor_score for kind in (tags.regressor_tags, tags.classifier_tags) if kind is not None)


@every
def test_every_fit_is_an_entry_before_any_noise_and_what_is_too_much_is_refused(
    name: str, tmp_path: Path
) -> None:
    first = estimator(name).fit(X, Y)
    consumed = md.plan.consumption(first.privacy_)
    ledger = md.Ledger(tmp_path / "ledger.jsonl", md.ZeroConcentratedDP(2.5 * consumed.rho))
    model = estimator(name, ledger=ledger, random_state=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # fitted again, but counted
        model.fit(X, Y).fit(X, Y)
    assert len(ledger.to_frame()) == 2 and ledger.left().rho == pytest.approx(0.5 * consumed.rho)
    released = vars(model).copy()
    with pytest.raises(md.DesignError, match="and this result needs"):
        model.fit(X, Y)
    assert len(ledger.to_frame()) == 2
    assert all(
        vars(model)[key] is value
        for key, value in released.items()
        if key in ("coef_", "path_", "components_")
    )


@every
def test_what_is_refused_for_its_input_enters_nothing(name: str, tmp_path: Path) -> None:
    ledger = md.Ledger(tmp_path / "ledger.jsonl", md.ApproximateDP(1.0, 1e-6))
    holes = X.copy()
    holes[0, 0] = np.nan
    for data in (holes, X[:0]):
        with pytest.raises(ValueError):
            estimator(name, ledger=ledger).fit(data, Y[: len(data)])
    for bad in ({"privacy": None}, {"privacy": md.PureDP(1.0)}, {"progress": 3}):
        if not (name == "PrivateLinearRegression" and bad.get("privacy")):
            with pytest.raises(md.DesignError):
                estimator(name, ledger=ledger, **bad).fit(X, Y)
    with pytest.raises(ValueError, match="seed"):
        estimator(name, ledger=ledger, random_state="seed").fit(X, Y)
    with pytest.raises(md.DesignError, match="must be a Ledger"):
        estimator(name, ledger=str(ledger.path)).fit(X, Y)
    assert ledger.to_frame().empty


@every
def test_a_ledger_survives_clones_and_pickles(name: str, tmp_path: Path) -> None:
    ledger = md.Ledger(tmp_path / "ledger.jsonl", md.ZeroConcentratedDP(1.0))
    model = estimator(name, ledger=ledger)
    for other in (
        clone(model),
        pickle.loads(pickle.dumps(model)),
        pickle.loads(pickle.dumps(clone(model).fit(X, Y))),
    ):
        other.fit(X, Y)
    assert len(ledger.to_frame()) == 4
    moved = clone(model)
    ledger.path.unlink()
    with pytest.raises(md.DesignError, match="nothing is released"):
        moved.fit(X, Y)


def test_a_search_is_counted_fit_by_fit_and_ends_at_the_limit(tmp_path: Path) -> None:
    model = estimator("PrivateGeneralizedLinearRegression")
    needs = md.plan.consumption(clone(model).fit(X, Y).privacy_).rho
    ledger = md.Ledger(tmp_path / "ledger.jsonl", md.ZeroConcentratedDP(4.5 * needs))
    search = GridSearchCV(model.set_params(ledger=ledger), {"threshold": [0.3, 0.5]}, cv=2)
    with pytest.raises(
        md.DesignError, match="and this result needs"
    ):  # two candidates twice, and the best again
        search.fit(X, Y)
    assert len(ledger.to_frame()) == 4
    with pytest.raises(ValueError, match="4 fits failed"):
        search.fit(X, Y)
    assert len(ledger.to_frame()) == 4


def test_a_fit_of_several_rounds_is_charged_whole_each_time(tmp_path: Path) -> None:
    """Not as one of the rounds that an earlier fit has paid for."""
    ledger = md.Ledger(tmp_path / "ledger.jsonl", md.ZeroConcentratedDP(1.0))
    for _ in range(2):
        estimator("PrivateLogisticRegression", ledger=ledger).fit(X, Y)
    table = ledger.to_frame()
    assert table["entry"].tolist() == [1, 2] and table["rho"].nunique() == 1


PURE = md.PureDP(2.0)
CURRENCIES: dict[str, tuple[str, dict[str, Any], str, float]] = {
    "least squares": ("PrivateLinearRegression", {"privacy": PURE}, "epsilon", 2.0),
    "components": ("PrivatePCA", {"privacy": PURE, "noise": "laplace"}, "epsilon", 2.0),
    "zero-concentrated": ("PrivateLogisticRegression", {"privacy": md.ZeroConcentratedDP(0.1)}, "rho", 0.1),
    "Gaussian": ("PrivateLogisticRegression", {"privacy": md.GaussianDP(0.3)}, "mu", 0.3),
}  # fmt: skip


@pytest.mark.parametrize("case", CURRENCIES)
def test_what_a_fit_consumes_is_what_it_was_asked_to_keep(case: str, tmp_path: Path) -> None:
    name, options, currency, whole = CURRENCIES[case]
    ledger = md.Ledger(tmp_path / "ledger.jsonl", options["privacy"])
    estimator(name, **options, ledger=ledger).fit(X, Y)
    assert ledger.to_frame()[currency].iloc[0] == pytest.approx(whole, rel=1e-6)
    with pytest.raises(md.DesignError, match="ledger = "):
        estimator(name, **options, ledger=ledger).fit(X, Y)


# -- an enemy's data -----------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("last", [np.zeros(2), np.full(2, 1e308), np.full(2, -5e-324)])
def test_no_record_raises_or_warns(name: str, last: np.ndarray) -> None:
    for base in (X[:40], np.zeros((40, 2)), np.full((40, 2), 7.0)):
        x = np.vstack([base, last])
        far = -1.0 if "classes" in ESTIMATORS[name] else 1e308
        for y in (np.ones(41), np.append(np.ones(40), far)):
            with warnings.catch_warnings():
                warnings.filterwarnings("error")
                warnings.filterwarnings("ignore", "[0-9]+% of the records")  # a noisy count
                model = estimator(name).fit(x, y)
            found = model.components_ if name == "PrivatePCA" else model.coef_
            assert np.isfinite(found).all()


# -- What is no finite number, or becomes none by conversion, is refused before anything depends on it; numbers are taken however they are held

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
