"""The printed baseline of linear queries, Hardt and Talwar's body: the linear program of its norm against bodies known in closed form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mechdesign_studies.user_level.linear_baselines import (
    ConvexHull,
    body_second_moment,
    norm_program,
    simulated_second_moment,
)


def test_norm_of_unit_vectors_is_that_of_l1_and_its_noise_is_laplace_noise() -> None:
    norm = norm_program(np.eye(10))
    for theta in np.random.default_rng(0).normal(size=(20, 10)):
        assert norm(theta) == pytest.approx(np.abs(theta).sum())
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 10)))[
        0
    ].T  # a body that does not fill the space
    mean, deviation = simulated_second_moment(3 * turned, 800, np.random.default_rng(2))
    assert deviation < 0.15 * 180 and abs(mean - 9 * 2 * 10) < 4 * deviation


def test_second_moment_by_directions_is_that_of_the_faces() -> None:
    vectors = np.random.default_rng(0).normal(size=(9, 3)) * [1.0, 5.0, 0.2]
    exact = body_second_moment(ConvexHull(np.vstack([vectors, -vectors])))
    mean, deviation = simulated_second_moment(vectors, 800, np.random.default_rng(1))
    assert deviation < 0.05 * exact and abs(mean - exact) < 4 * deviation


def test_of_one_query_the_published_baseline_is_laplace_noise() -> None:
    table = pd.read_csv(Path(__file__).parents[2] / "results" / "user-level-tables" / "table2a.csv")
    one = table[(table["queries"] == 1) & (table["model"] == "central")].set_index("mechanism")["error"]
    for label in ("PrivEMDLinear", "user-level"):
        assert one[f"{label} K-norm"] == pytest.approx(one[f"{label} ℓ1"], rel=1e-9)
    several = table[(table["model"] == "central") & (table["queries"] > 1)]
    for _, cell in several.groupby(["alpha", "users", "queries", "dimension"]):
        errors = cell.groupby("mechanism")["error"].first()  # less than noise of a norm whose ball is larger
        assert errors["user-level K-norm"] < errors.filter(like="user-level ℓ").min()
