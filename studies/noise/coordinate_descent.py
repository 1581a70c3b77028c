"""Private coordinate descent (Section VI-A of Muthukrishnan and Kalyani): part of the study `allocation`.

Runs on real data, when a data folder is given.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.shell.studykit import Report


def read_data(folder: Path | None) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], str]:
    """California housing and Electricity, features and target, and where they came from."""
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    if folder is not None:
        files = (
            ("California", "california_housing.csv.gz", "median_house_value"),
            ("Electricity", "electricity.csv.gz", "class"),
        )
        for name, file, target in files:
            if (folder / file).exists():
                frame = pd.read_csv(folder / file)
                found[name] = (frame.drop(columns=target).to_numpy(float), frame[target].to_numpy(float))
        return found, "the data folder"
    try:
        from sklearn.datasets import fetch_california_housing

        data = fetch_california_housing(download_if_missing=False)
        found["California"] = (data.data, data.target)
        return found, "scikit-learn's cache (California housing only)"
    except (ImportError, OSError):
        return {}, "none"


def prepared(name: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows without gaps; features in their own units (centred housing in one common unit), so that they differ."""
    keep = np.all(np.isfinite(x), axis=1) & np.isfinite(y)
    x, y = x[keep], y[keep]
    if name == "California":
        x = x - x.mean(axis=0)
        return 10 * x / x.std(axis=0).max(), (y - y.mean()) / y.std()
    return x, np.where(y > y.mean(), 1.0, -1.0)


def descend(
    x: np.ndarray,
    y: np.ndarray,
    *,
    passes: int,
    rate: float,
    penalty: float,
    clip: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """Proximal coordinate descent (Algorithm 2): squared loss with ℓ₁, logistic loss with ℓ₂; iterates by pass."""
    users, k = x.shape
    lasso = bool(np.abs(y).max() > 1 or len(np.unique(y)) > 2)
    smooth = (x * x).mean(axis=0) * (1.0 if lasso else 0.25)
    theta, score = np.zeros(k), np.zeros(users)
    path = np.empty((passes, k))
    for index in range(passes):
        for i in range(k):
            slope = (score - y) * x[:, i] if lasso else -y * x[:, i] / (1 + np.exp(y * score))
            gradient = (slope if clip is None else np.clip(slope, -clip[i], clip[i])).mean()
            step = rate / smooth[i]
            moved = theta[i] - step * gradient
            if scales is not None and rng is not None:
                moved += scales[i] * rng.standard_normal()
            if lasso:
                moved = math.copysign(max(abs(moved) - step * penalty, 0.0), moved)
            else:
                moved /= 1 + step * penalty
            score += (moved - theta[i]) * x[:, i]
            theta[i] = moved
        path[index] = theta
    return path


def objective(x: np.ndarray, y: np.ndarray, theta: np.ndarray, penalty: float, lasso: bool) -> float:
    """The empirical risk with its penalty."""
    score = x @ theta
    if lasso:
        return float(((score - y) ** 2).mean() / 2 + penalty * np.abs(theta).sum())
    return float(np.logaddexp(0, -y * score).mean() + penalty / 2 * (theta @ theta))


def coordinate_descent(report: Report, passes: int = 50, trials: int = 3) -> None:
    """Private coordinate descent: scale-perturb-rescale noise, least noise, and least harm to the risk."""
    data, source = read_data(report.data_dir)
    if not data:
        report.text(
            "**Private coordinate descent** needs the California housing and Electricity data. No data folder was given "
            "(`--data-dir` or `MECHDESIGN_DATA`) and scikit-learn has none in its cache: this part was skipped."
        )
        return
    published = {"California": ("1.88%", "0.45%"), "Electricity": ("0.22%", "0.13%")}
    rows = []
    same = True
    for name, (features, target) in data.items():
        x, y = prepared(name, features, target)
        users, k = x.shape
        lasso = name == "California"
        penalty = 1e-4 if lasso else 1 / users
        privacy = md.ApproximateDP(1.0, 1 / users**2)
        smooth = (x * x).mean(axis=0) * (1.0 if lasso else 0.25)
        best = objective(x, y, descend(x, y, passes=600, rate=1.0, penalty=penalty)[-1], penalty, lasso)
        found: dict[str, list[float]] = {"scale-perturb-rescale": [], "optimal": []}
        for rate in (0.4, 1.0):
            for size in (1.0, 3.0, 10.0):
                clip = size * np.sqrt(smooth / smooth.sum())
                # All passes compose: the profile of the whole run is √passes times that of one.
                lam = math.sqrt(passes) * 2 * rate / smooth * clip / users
                design = md.NoiseAllocation(noise="gaussian", sensitivities=lam, privacy=privacy)
                frame = design.solve().compare().set_index("mechanism")
                risk = md.NoiseAllocation(
                    noise="gaussian", sensitivities=lam, privacy=privacy, weights=smooth
                ).solve()
                same &= bool(
                    np.allclose(risk.scales, frame.loc["scale-perturb-rescale", "scales"], rtol=1e-9)
                )
                for kind, errors in found.items():
                    rng = report.rng(f"{name}/{rate}/{size}")
                    options = {"clip": clip, "scales": frame.loc[kind, "scales"], "rng": rng}
                    runs = [
                        descend(x, y, passes=passes, rate=rate, penalty=penalty, **options)[-1]
                        for _ in range(trials)
                    ]
                    errors.append(
                        float(np.mean([objective(x, y, r, penalty, lasso) for r in runs])) / best - 1
                    )
        rows.append(
            {
                "data": f"{name} ({users} × {k})",
                "published, DP-CD": published[name][0],
                "scale-perturb-rescale": f"{100 * min(found['scale-perturb-rescale']):.3f}%",
                "published, improved DP-CD": published[name][1],
                "least Σσ²": f"{100 * min(found['optimal']):.3f}%",
            }
        )
    report.record(coordinate_descent=rows, data_source=source)
    # In the text, not in a checked table: a run without the data must still pass the check of the others.
    report.text(
        f"## Private coordinate descent, relative error after {passes} passes\n\n{pd.DataFrame(rows).to_markdown(index=False)}\n\n"
        f"Data from {source}; (1, 1/N²)-DP, best of 6 pairs of learning rate and clipping constant, mean of {trials} trials; features "
        "in their own units, LASSO penalty 1e-4, ridge penalty 1/N, Electricity without its date and day columns. The paper leaves "
        "preprocessing and penalties to a reference, so absolute errors are not comparable. The published *gain* does not "
        "appear either, and there is a reason: an update of coordinate i harms the risk by about M_i σ_i²/2, with M_i its "
        "smoothness, so the noise to minimise is Σ M_i σ_i², not Σ σ_i². With those weights, and with C_i ∝ √M_i as the paper "
        "clips, the optimal allocation *is* scale-perturb-rescale "
        f"(scales equal to 1e-9 in all runs here: {same}); minimising the unweighted sum moves noise to the coordinates that "
        "matter most. `NoiseAllocation(weights=...)` is the tool for such cases."
    )
