r"""Private regression from declared bounds alone, and an attack on every estimator.

Least squares and logistic regression with default settings: bounds and a budget are declared, nothing is tuned. Columns are standardised by the training
part (counted as public), bounds are ±5 for every column; (ε, 10⁻⁶), one record replaced; 80% of the records for training.

The attack fits each estimator a thousand times to each of two data sets that differ in one record, as unlike as the bounds allow. A third of the fits
finds the direction and the threshold that tell them apart, the others count how often they do; Clopper and Pearson's limits, 97.5% each, of both
rates give a lower bound on ε, as far as δ allows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import datasets
from sklearn.linear_model import LinearRegression

import mechdesign as md
from mechdesign.shell.studykit import Report

DELTA = 1e-6
BOUND = 5.0
SEEDS = 8
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def split(x: np.ndarray, y: np.ndarray) -> Split:
    """Standardised training part and test part."""
    order = np.random.default_rng(0).permutation(len(x))
    train, test = np.split(order, [int(0.8 * len(x))])
    spread = x[train].std(axis=0)
    x = (x - x[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return x[train], y[train], x[test], y[test]


def synthetic() -> Split:
    """Twenty correlated columns."""
    rng = np.random.default_rng(5)
    mixed = rng.normal(size=(20, 20)) @ np.diag(np.linspace(1, 0.1, 20))
    x = rng.normal(size=(20000, 20)) @ mixed.T
    y = x @ rng.normal(size=20)
    return split(x, y + 0.5 * y.std() * rng.normal(size=20000))


def ones() -> Split:
    """y = X·1 and noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(75000, 50))
    return split(x, x.sum(axis=1) + rng.normal(size=75000))


def california(report: Report) -> Split | None:
    """California housing, from the data folder."""
    path = report.data("california_housing.csv.gz")
    if path is None:
        return None
    frame = pd.read_csv(path)
    return split(frame.iloc[:, :-1].to_numpy(float), frame.iloc[:, -1].to_numpy(float))


def classes(name: str) -> Split:
    """Breast cancer, or digits by their parity: classes ±1."""
    loader = datasets.load_digits if name == "digits" else datasets.load_breast_cancer
    x, y = loader(return_X_y=True)
    return split(x, 2.0 * (y % 2) - 1)


def least_squares(report: Report) -> list[tuple[object, ...]]:
    """Test error over the variance of the training part."""
    questions = [("correlated synthetic", synthetic(), (-60.0, 60.0), ((1.0, 0.1985),))]
    if not report.quick:
        budgets = ((0.3, 0.375), (1.0, 0.371), (4.0, 0.3695))
        questions.append(("California", california(report), (14999.0, 500001.0), budgets))
        questions.append(("y = X·1 + N(0, 1)", ones(), (-36.0, 36.0), ((1.0, 0.025),)))
    rows = []
    for name, data, target, budgets in questions:
        if data is None:
            continue
        x, y, x_test, y_test = data
        inside, inside_test = x.clip(-BOUND, BOUND), x_test.clip(-BOUND, BOUND)
        plain = np.mean((LinearRegression().fit(inside, y).predict(inside_test) - y_test) ** 2) / y.var()
        for epsilon, bar in budgets:
            found = []
            for seed in range(2 if report.quick else SEEDS):
                model = md.learning.PrivateLinearRegression(
                    privacy=md.ApproximateDP(epsilon, DELTA),
                    bounds=(-BOUND, BOUND),
                    target_bounds=target,
                    random_state=seed,
                ).fit(x, y)
                found.append(np.mean((model.predict(x_test) - y_test) ** 2) / y.var())
            rows.append((name, *x.shape, epsilon, plain, np.mean(found), stats.sem(found), bar))
    return rows


def logistic(report: Report) -> list[tuple[object, ...]]:
    """Log loss on the test part."""
    rows = []
    bars = {"breast cancer": (0.19, 0.15, 0.115), "digits": (0.35, 0.315, 0.275)}
    for name, wanted in bars.items():
        x, y, x_test, y_test = classes(name)
        for epsilon, bar in zip((0.5, 1.0, 4.0), wanted):
            found = []
            for seed in range(2 if report.quick else SEEDS):
                model = md.learning.PrivateLogisticRegression(
                    privacy=md.ApproximateDP(epsilon, DELTA),
                    bounds=(-BOUND, BOUND),
                    classes=[-1.0, 1.0],
                    random_state=seed,
                ).fit(x, y)
                found.append(np.logaddexp(0, -y_test * model.decision_function(x_test)).mean())
            rows.append((name, *x.shape, epsilon, np.mean(found), stats.sem(found), bar))
    return rows


def attacked(epsilon: float) -> dict[str, tuple[Callable[[], object], Callable[[object], np.ndarray], bool]]:
    """Every estimator, what a fit releases, and whether neighbours have one record more or less."""
    learning, privacy = md.learning, md.ApproximateDP(epsilon, DELTA)
    whole = {"privacy": privacy, "bounds": (-1.0, 1.0)}
    return {
        "PrivateLinearRegression": (
            lambda: learning.PrivateLinearRegression(**whole, target_bounds=(-1.0, 1.0)),
            lambda m: np.append(m.moments_[0][np.triu_indices(4)] / m.radius_**2, m.clipped_), False,
        ),
        "PrivateLogisticRegression": (
            lambda: learning.PrivateLogisticRegression(**whole, classes=[-1.0, 1.0], steps=10),
            lambda m: m.path_[-1] * m.radius_, False,
        ),
        "PrivateGeneralizedLinearRegression": (
            lambda: learning.PrivateGeneralizedLinearRegression(**whole, target_bounds=(-1.0, 1.0), threshold=1.0, steps=10),
            lambda m: m.path_.ravel() * m.radius_, False,
        ),
        "PrivatePCA": (
            lambda: learning.PrivatePCA(privacy=privacy, bounds=math.sqrt(2)), lambda m: m.second_moments_[np.triu_indices(2)], True,
        ),
    }  # fmt: skip


def lower_bound(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """A lower bound on ε that holds in 95 of 100 attacks, and the share of right guesses."""
    third = len(one) // 3
    pooled = np.cov(np.vstack([one[:third] - one[:third].mean(0), other[:third] - other[:third].mean(0)]).T)
    direction = np.linalg.pinv(np.atleast_2d(pooled)) @ (one[:third].mean(0) - other[:third].mean(0))
    scores = [one @ direction, other @ direction]
    thresholds = np.quantile(np.concatenate([s[:third] for s in scores]), np.linspace(0.05, 0.95, 19))
    held = [s[third:] for s in scores]

    def bound(threshold: float, parts: list[np.ndarray], level: float) -> float:
        hits = [int((s > threshold).sum()) for s in parts]
        sizes = [len(s) for s in parts]
        found = []
        for yes, no in (((0, hits[0]), (1, hits[1])), ((1, sizes[1] - hits[1]), (0, sizes[0] - hits[0]))):
            least = stats.beta.ppf(level, yes[1], sizes[yes[0]] - yes[1] + 1) if yes[1] else 0.0
            most = stats.beta.ppf(1 - level, no[1] + 1, sizes[no[0]] - no[1]) if no[1] < sizes[no[0]] else 1.0
            found.append(math.log(max(least - DELTA, 1e-300) / most))
        return max(found)

    best = max(thresholds, key=lambda t: bound(t, [s[:third] for s in scores], 0.2))
    middle = np.median(np.concatenate([s[:third] for s in scores]))
    right = float(((held[0] > middle).mean() + (held[1] <= middle).mean()) / 2)
    return max(0.0, bound(best, held, 0.0125)), right


def audit(report: Report, epsilon: float = 4.0) -> pd.DataFrame:
    """Fit every estimator to two neighbours, again and again."""
    fits = 60 if report.quick else 1000
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (200, 2))
    x[0], y = (1.0, 1.0), np.zeros(200)
    # the worst replacements: an orthogonal record where matrices are released, the other class or target where gradients are
    turned, one, other = x.copy(), y.copy(), y.copy()
    turned[0], one[0], other[0] = (1.0, -1.0), 1.0, -1.0
    labels = np.where(np.arange(1, 200) % 2, 1.0, -1.0)
    own = {
        "PrivateLinearRegression": ((x, y), (turned, y)),
        "PrivateLogisticRegression": ((x, np.append(1.0, labels)), (x, np.append(-1.0, labels))),
        "PrivatePCA": ((x, y), (x[1:], y[1:])),
    }
    rows = []
    estimators = attacked(epsilon)
    with report.progress("attacks", len(estimators) * fits) as step:
        for name, (made, released, removed) in estimators.items():
            pairs: list[tuple[np.ndarray, np.ndarray]] = []
            first, second = own.get(name, ((x, one), (x, other)))
            for _ in range(fits):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    pairs.append((released(made().fit(*first)), released(made().fit(*second))))
                step()
            bound, right = lower_bound(*(np.array(side) for side in zip(*pairs)))
            rows.append(
                (
                    name,
                    "one record less" if removed else "one record replaced",
                    fits,
                    epsilon,
                    bound,
                    right,
                    bound < epsilon,
                )
            )
    columns = [
        "estimator",
        "neighbours",
        "fits of each",
        "stated epsilon",
        "lower bound on epsilon",
        "right guesses",
        "below",
    ]
    return pd.DataFrame(rows, columns=columns)


def run(report: Report) -> None:
    """Write the study: what is reached with default settings, and what an attack finds."""
    shared = ["data", "records", "columns", "epsilon"]
    columns = [*shared, "not private", "default settings", "standard error", "bar"]
    squares = pd.DataFrame(least_squares(report), columns=columns)
    report.table(
        "least-squares", squares, caption="Least squares: test error over the variance", rtol=0.02, atol=1e-3
    )
    scores = pd.DataFrame(logistic(report), columns=[*shared, "default settings", "standard error", "bar"])
    report.table(
        "logistic", scores, caption="Logistic regression: log loss on the test part", rtol=0.05, atol=2e-3
    )
    attacks = audit(report)
    report.table(
        "audit",
        attacks,
        caption="What an attack with canaries finds",
        volatile=("lower bound on epsilon", "right guesses"),
    )
    met = [
        int((t["default settings"] <= t["bar"] + 2 * t["standard error"]).sum()) for t in (squares, scores)
    ]
    report.text(
        f"With bounds and a budget declared and nothing tuned, {met[0]} of {len(squares)} bars of least squares are met and {met[1]} of {len(scores)} of "
        f"logistic regression, two standard errors allowed. The attack's largest lower bound on ε is below the stated one for "
        f"{int(attacks['below'].sum())} of {len(attacks)} estimators: it knows both data sets and sees all that is released, drawn exactly."
    )
