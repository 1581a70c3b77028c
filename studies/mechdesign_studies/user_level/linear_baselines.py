r"""Linear queries of k numbers: earth mover's privacy against what user-level privacy has best (Lemmas 6.1 and 6.3).

* *Local, user level*: Duchi, Jordan and Wainwright's ℓ₂ sampler. An answer in a ball of radius r is rounded to its sphere without bias and
  answered by a point of the hemisphere around it, with odds :math:`e^\varepsilon`, or of the other. With
  :math:`a = \Gamma(k/2)/(\sqrt\pi\,\Gamma(\frac{k+1}2))` the output has length r/s, :math:`s = a (e^\varepsilon - 1)/(e^\varepsilon + 1)`, and squared error
  :math:`r^2/s^2 - \lVert x\rVert^2`. The best cap (`PrivUnit`) in its place is the optimum.
* *Central, user level*: Hardt and Talwar's body. Changes lie in :math:`K/n`, :math:`K = \mathrm{conv}\{f(x) - f(y)\}`; noise of density
  :math:`e^{-\varepsilon \lVert z\rVert_K}` is Gamma(k + 1) times a uniform point of K. Over the simplices :math:`(0, v_1, …, v_k)` of a triangulation,
  with weights w their shares of the volume, :math:`E\lVert z\rVert^2 = \sum w\,(\sum_i \lVert v_i\rVert^2 + \lVert\sum_i v_i\rVert^2)/\varepsilon^2`.
  Where it has too many facets (1,770 changes of ten numbers), by the linear program of its norm: with :math:`\theta` uniform on the sphere of the
  :math:`d` numbers that the changes span, :math:`r = 1/\lVert\theta\rVert_K` and u uniform in K, :math:`E q(u) = \frac{d}{d+2} E r^{d+2} q(\theta) / E r^d` for
  a quadratic form q, and :math:`E \lVert z\rVert^2 = (d + 1)(d + 2)\,E\lVert u\rVert^2/\varepsilon^2`.
* **[new]** The same body for the metric, :math:`\mathrm{conv}\{(f(x) - f(y))/d(x, y)\}` with α for ε: earth mover's privacy of exactly
  the shape that the query has.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import highspy
import numpy as np
import pandas as pd
from scipy import special
from scipy.spatial import ConvexHull

import mechdesign as md


def changes(query: md.user_level.LinearQuery, *, metric: bool) -> np.ndarray:
    """All changes of the answer but those that are none, each over its distance where the metric counts."""
    x, y = np.triu_indices(query.space.size, 1)
    change = query.values[x] - query.values[y]
    if metric:
        distances = query.space.distances
        change = change / distances[x, y][:, None]
    reach = np.linalg.norm(change, axis=1)
    return change[reach > 1e-12 * reach.max()]


def body(query: md.user_level.LinearQuery, *, metric: bool) -> ConvexHull:
    """The hull of these changes and of their negatives."""
    far = changes(query, metric=metric)
    return ConvexHull(np.vstack([far, -far]))


def body_second_moment(hull: ConvexHull) -> float:
    """E‖z‖² of noise of density e^{-‖z‖_K}: exact over the simplices between the origin and each facet."""
    corners = hull.points[hull.simplices]
    volumes = np.abs(np.linalg.det(corners))
    each = (corners**2).sum(axis=(1, 2)) + (corners.sum(axis=1) ** 2).sum(axis=1)
    return float(volumes @ each / volumes.sum())


def norm_program(vectors: np.ndarray) -> Callable[[np.ndarray], float]:
    """The norm of the hull of vectors v and of their negatives: max θ·y over −1 ≤ v·y ≤ 1, the rows kept from call to call."""
    rows, d = vectors.shape
    program = highspy.HighsLp()
    program.num_col_, program.num_row_, program.sense_ = d, rows, highspy.ObjSense.kMaximize
    program.col_cost_ = np.zeros(d)
    program.col_lower_, program.col_upper_ = np.full(d, -np.inf), np.full(d, np.inf)
    program.row_lower_, program.row_upper_ = -np.ones(rows), np.ones(rows)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.arange(0, rows * d + 1, d)
    program.a_matrix_.index_ = np.tile(np.arange(d), rows)
    program.a_matrix_.value_ = vectors.ravel()
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("presolve", "off")
    solver.passModel(program)

    def norm(theta: np.ndarray) -> float:
        solver.changeColsCost(d, np.arange(d, dtype=np.int32), theta)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError("the linear program of the norm was not solved")
        return float(solver.getInfo().objective_function_value)

    return norm


def simulated_second_moment(vectors: np.ndarray, draws: int, rng: np.random.Generator) -> tuple[float, float]:
    """E‖z‖² of noise of density e^{-‖z‖_K} by the linear program of the norm, and its standard error.

    Directions are drawn where the vectors have the same spread in all of them.
    """
    u, sizes, turns = np.linalg.svd(vectors, full_matrices=False)
    d = int((sizes > 1e-9 * sizes[0]).sum())
    norm, back = norm_program(u[:, :d].copy()), sizes[:d, None] * turns[:d]
    theta = rng.normal(size=(draws, d))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    r = 1 / np.array([norm(t) for t in theta])
    weights = (r / r.max()) ** d
    squares = d * (d + 1) * r**2 * ((theta @ back) ** 2).sum(axis=1)
    mean = float(weights @ squares / weights.sum())
    return mean, float(np.linalg.norm(weights * (squares - mean)) / weights.sum())


def body_noise(hull: ConvexHull, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of that noise, for simulation."""
    corners = hull.points[hull.simplices]
    volumes = np.abs(np.linalg.det(corners))
    k = corners.shape[1]
    chosen = corners[rng.choice(len(corners), size=size, p=volumes / volumes.sum())]
    spacings = rng.standard_exponential((size, k + 1))
    inside = np.einsum("si,sij->sj", (spacings / spacings.sum(axis=1, keepdims=True))[:, :k], chosen)
    return inside * rng.gamma(k + 1, size=(size, 1))


def hemisphere(k: int, epsilon: float) -> float:
    """1/s of the ℓ₂ sampler: the length of its output for inputs in the unit ball."""
    a = math.exp(special.gammaln(k / 2) - special.gammaln((k + 1) / 2)) / math.sqrt(math.pi)
    return (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1) / a


def linear_table(
    query: md.user_level.LinearQuery, *, alpha: float, epsilon: float, delta: float, users: int
) -> pd.DataFrame:
    """Root mean square ℓ₂ errors of the average over all users, central and local."""
    k = query.dimension
    centre = (query.values.max(axis=0) + query.values.min(axis=0)) / 2
    radius = float(np.linalg.norm(query.values - centre, axis=1).max())
    flat = md.user_level.LinearQuery(md.MetricSpace.clustered(1, query.space.size, within=1.0), query.values)
    rows = []

    def add(model: str, privacy: str, name: str, error: float) -> None:
        rows.append({"model": model, "privacy": privacy, "mechanism": name, "rms error": error})

    for model, n, averaged in (("central", users, 1), ("local", 1, users)):
        options = {"model": model, "users": n}
        for privacy, asked, budget in (("earth mover's", query, alpha), ("user level", flat, epsilon)):
            for name, more in (("ℓ₂ noise", {"norm": 2}), ("Gaussian", {"gaussian": True, "delta": delta})):
                release = md.LinearRelease(asked, budget, **options, **more)
                add(model, privacy, name, release.rms(averaged=averaged))
            hull = body(query, metric=privacy == "earth mover's")
            name = (
                "body of the changes (Hardt and Talwar)"
                if privacy == "user level"
                else "body of the slopes, [new]"
            )
            add(model, privacy, name, math.sqrt(body_second_moment(hull) / averaged) / (budget * n))
    add(
        "local", "user level", "ℓ₂ sampler (Duchi et al.)", radius * hemisphere(k, epsilon) / math.sqrt(users)
    )
    cap = md.vectors.PrivUnit(k, md.PureDP(epsilon))
    add("local", "user level", "best cap", radius * math.sqrt(cap.error / users))
    return pd.DataFrame(rows)
