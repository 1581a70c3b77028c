"""Real data for the studies of learning: files of the data folder, and what scikit-learn ships."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.linear_model import Lasso, LogisticRegression

import mechdesign as md
from mechdesign.shell.studykit import Report

FILES = {
    "California": ("california_housing.csv.gz", "median_house_value"),
    "Electricity": ("electricity.csv.gz", "class"),
    "wine, red": ("wine_quality_red.csv.gz", "quality"),
    "wine, white": ("wine_quality_white.csv.gz", "quality"),
    "Boston": ("boston_housing.csv.gz", "medv"),
    "airfoil": ("airfoil_self_noise.csv.gz", "sound_pressure_db"),
    "pumpkin seeds": ("pumpkin_seeds.csv.gz", "class"),
    "heart": ("heart_statlog.csv.gz", "class"),
}
CIFAR, RECORD = ("cifar10_train_1.bin.gz", "cifar10_train_2.bin.gz", "cifar10_test.bin.gz"), 3073
CLASSES = ("Electricity", "pumpkin seeds", "heart", "breast cancer")


@dataclass(frozen=True)
class Problem:
    """A regularised risk on a data set, and its least value.

    Features are centred and share one unit, so that coordinates differ as they do in the data; `penalty` is "l1" (squared
    loss) or "l2" (logistic loss).
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    penalty: str
    alpha: float

    @property
    def lasso(self) -> bool:
        """Whether the loss is squared, with ℓ₁."""
        return self.penalty == "l1"

    @property
    def smoothness(self) -> np.ndarray:
        """M_i."""
        return (self.x**2).mean(axis=0) * (1.0 if self.lasso else 0.25)

    def objective(self, theta: np.ndarray) -> float:
        """The penalised mean loss."""
        score = self.x @ theta
        if self.lasso:
            return float(((score - self.y) ** 2).mean() / 2 + self.alpha * np.abs(theta).sum())
        return float(np.logaddexp(0, -self.y * score).mean() + self.alpha / 2 * (theta @ theta))

    def least(self) -> float:
        """J*, by scikit-learn's own solvers."""
        if self.lasso:
            found = Lasso(self.alpha, fit_intercept=False, tol=1e-12, max_iter=10**6).fit(self.x, self.y)
        else:
            strength = 1 / (self.alpha * len(self.x))
            found = LogisticRegression(
                C=strength, fit_intercept=False, tol=1e-12, solver="newton-cholesky", max_iter=1000
            ).fit(self.x, self.y)
        return self.objective(found.coef_.ravel())


def _standard(y: np.ndarray) -> np.ndarray:
    return (y - y.mean()) / y.std()


def problem(report: Report, name: str, *, standardised: bool = False) -> Problem | None:
    """A data set of the data folder, diabetes or breast cancer; None where the file is absent.

    Columns keep one common unit; or each has mean 0 and variance 1, with weights 0.01 of ℓ₁ and 1/N of ℓ₂.
    """
    if name in FILES:
        file, target = FILES[name]
        path = report.data(file)
        if path is None:
            return None
        frame = pd.read_csv(path).dropna()
        labels = frame[target]
        x = frame.drop(columns=target).to_numpy(float)
        y = (labels.factorize(sort=True)[0] if name in CLASSES else labels.to_numpy()).astype(float)
    else:
        loader = {"diabetes": datasets.load_diabetes, "breast cancer": datasets.load_breast_cancer}[name]
        x, y = loader(return_X_y=True)
    if standardised:
        x = (x - x.mean(axis=0)) / x.std(axis=0)
    elif name == "California":
        x = x - x.mean(axis=0)
        return Problem(name, 10 * x / x.std(axis=0).max(), _standard(y), "l1", 1e-4)
    if name in CLASSES:
        return Problem(name, x, np.where(y > y.mean(), 1.0, -1.0), "l2", 1 / len(x))
    return Problem(name, x, _standard(y), "l1", 1e-2)


def mnist(report: Report, split: str = "t10k") -> tuple[np.ndarray, np.ndarray] | None:
    """The 10,000 test images of MNIST ("t10k") or the 60,000 of "train", rows of 784 in [0, 1], and their labels; None where absent."""
    paths = [report.data(f"mnist_{split}-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1")]
    if None in paths:
        return None
    images, labels = (_idx(path, start) for path, start in zip(paths, (16, 8)) if path is not None)
    return images.reshape(-1, 784) / 255.0, labels.astype(np.int64)


def _idx(path: Path, start: int) -> np.ndarray:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=start)


def cifar(report: Report) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None:
    """20,000 training images of CIFAR-10, two fifths of them, and its 10,000 test images, each with labels; None where absent.

    The pixels lie in [−2, 2]. Files are of the binary version: the one of Python is pickled, and not read.
    """
    found = [report.data(file) for file in CIFAR]
    if None in found:
        return None
    (x1, y1), (x2, y2), test = (_records(path) for path in found if path is not None)
    return (np.concatenate([x1, x2]), np.concatenate([y1, y2])), test


def _records(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with gzip.open(path) as file:
            numbers = np.frombuffer(file.read(), dtype=np.uint8)
    except (OSError, EOFError):
        numbers = np.empty(0, dtype=np.uint8)
    records = numbers[: numbers.size // RECORD * RECORD].reshape(-1, RECORD)
    if not numbers.size or numbers.size % RECORD or records[:, 0].max() > 9:
        raise md.DesignError(
            f"{path} is not CIFAR-10's binary version, gzipped: records of {RECORD} bytes, the first a label of 0 to 9"
        )
    return (records[:, 1:] / 255.0 - 0.5).astype(np.float32) * 4, records[:, 0].astype(np.int64)
