r"""Visits to the junctions of a street map under its shortest paths, private in the earth mover's distance.

The paper's own example of a graph is another: private connections between users whose covariates are public.

A street network: 150 junctions drawn in a square of 10 km, joined as their Delaunay triangulation is, every third street closed as long as the
network stays connected; distances along streets. Users are 30 visits each, by short random walks from home. Asked are the average street distances to
three landmarks (each 1-Lipschitz) and the histogram of visits.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial import Delaunay

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report

from .linear_baselines import body, body_noise, linear_table

NODES, USERS, VISITS, SIDE = 150, 1000, 30, 10.0
EPSILON, DELTA = 1.0, 1e-6


def streets(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of junctions in kilometres, and streets as pairs of them."""
    points = rng.uniform(0, SIDE, (NODES, 2))
    triangles = Delaunay(points).simplices
    pairs = np.unique(
        np.sort(np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]])), axis=0
    )
    keep = np.ones(len(pairs), dtype=bool)
    for closed in rng.permutation(len(pairs))[: len(pairs) // 3]:
        keep[closed] = False
        left = pairs[keep]
        joined = coo_array((np.ones(len(left)), tuple(left.T)), shape=(NODES, NODES))
        keep[closed] = connected_components(joined, directed=False)[0] > 1
    return points, pairs[keep]


def visits(network: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Nodes that users visit, shape (users, visits): steps along streets from home, now and then back there."""
    around = [np.append(network[network[:, 0] == v, 1], network[network[:, 1] == v, 0]) for v in range(NODES)]
    homes = rng.choice(NODES, size=USERS, p=rng.dirichlet(np.full(NODES, 0.5)))
    where, found = homes.copy(), np.empty((USERS, VISITS), dtype=np.int64)
    for day in range(VISITS):
        back = rng.random(USERS) < 0.3
        where = np.where(back, homes, [rng.choice(around[v]) for v in where.tolist()])
        found[:, day] = where
    return found


def run(report: Report) -> None:
    """Write the study."""
    points, network = streets(report.rng("streets"))
    lengths = np.linalg.norm(points[network[:, 0]] - points[network[:, 1]], axis=1)
    graph = coo_array((lengths, tuple(network.T)), shape=(NODES, NODES))
    distances = shortest_path(graph, directed=False)
    distances = np.maximum(distances, distances.T)
    space = md.MetricSpace.from_matrix(distances, unit="km")
    found = visits(network, report.rng("visits"))
    data = np.array([space.histogram(row) for row in found])
    truth = data.mean(axis=0)
    alpha = md.user_level.alpha_from_semantics(EPSILON, fraction=[1 / VISITS, 1.0], distance=[3.0, 0.1])
    detour = distances / np.maximum(np.linalg.norm(points[:, None] - points, axis=2), 1e-9)
    report.text(
        "The paper's own example of a graph is private connections between users whose covariates are public; this is a street map."
    )
    report.text(
        f"{NODES} junctions, {len(network)} streets, {space.diameter:.1f} km across; a way is {detour[distances > 0].mean():.2f} times as long as the straight line. α = {alpha:g} per km "
        f"protects one visit of {VISITS} moved by 3 km along the streets, or all by 100 m, with ε = {EPSILON:g}; two users are "
        f"{np.mean(md.emd(data[:60], data[60:120], space)):.1f} km apart on average."
    )
    landmarks = np.array(
        [np.linalg.norm(points - corner, axis=1).argmin() for corner in ((1, 1), (9, 2), (5, 9))]
    )
    query = md.user_level.LinearQuery(space, distances[:, landmarks], "distances")
    table = linear_table(query, alpha=alpha, epsilon=EPSILON, delta=DELTA, users=USERS)
    report.table(
        "landmarks",
        table,
        caption="Average street distance to three landmarks, km: root mean square ℓ₂ error",
        rtol=1e-4,
    )
    hull = body(query, metric=True)
    noise = body_noise(hull, 20000, report.rng("body")) / (alpha * USERS)
    stated = table.loc[
        table["mechanism"].str.endswith("[new]") & (table["model"] == "central"), "rms error"
    ].iloc[0]
    report.text(
        f"Drawn 20,000 times the noise of the slopes' body has error {np.sqrt((noise**2).sum(axis=1).mean()):.5f} km where the formula says {stated:.5f}."
    )

    repeats = 5 if report.quick else 30
    histogram = md.user_level.LinearQuery.histogram(space)
    release = md.LinearRelease(histogram, alpha, users=USERS)
    rng, rows, shown = report.rng("noise"), [], {"data": truth}

    def measure(name: str, draw) -> None:
        estimates = [md.user_level.simplex_projection(draw(), space) for _ in range(repeats)]
        errors = [md.emd(e, truth, space) for e in estimates]
        shown[name] = estimates[0]
        rows.append((name, np.mean(errors), np.std(errors, ddof=1) / np.sqrt(repeats)))

    measure("earth mover's, linear", lambda: release.sample(truth, rng=rng))
    measure("user level, Laplace", lambda: truth + rng.laplace(0, 2 / (USERS * EPSILON), NODES))
    rows.append(("no data: uniform", md.emd(np.full(NODES, 1 / NODES), truth, space), 0.0))
    columns = ["release, central", "error in the earth mover's distance, km", "standard error"]
    report.table(
        "histogram",
        pd.DataFrame(rows, columns=columns),
        caption=f"Histogram of visits, {repeats} releases each",
        rtol=1e-3,
    )
    fig, axes = figure(1, len(shown), width=10.0, height=3.4, sharey=True)
    for axis, (name, shares) in zip(axes, shown.items()):
        for a, b in network:
            axis.plot(*points[[a, b]].T, color="0.8", lw=0.6, zorder=1)
        axis.scatter(*points.T, s=2000 * shares, color=COLOURS[0], zorder=2)
        axis.set(title=name, xlabel="km", aspect="equal")
        axis.grid(False)
    report.figure("visits", fig, caption="Visits per junction: the data and one private release each")
    report.record(nodes=NODES, streets=len(network), alpha=alpha)
