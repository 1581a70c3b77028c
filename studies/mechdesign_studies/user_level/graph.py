r"""Private connections between users whose interests are public, under the earth mover's distance.

The paper's example of a graph: a user's data are her connections, compared by a public covariate of the people at their other ends. Two graphs
are hard to distinguish where one user has a few other connections, or connections of slightly other interests.

The graph is synthetic, the paper prints no numbers for it: 1,000 users, each with one of 60 public interests (six genres of ten), follow 30 others.
Connections are directed, so that each belongs to the list of one user. Asked are the average distances of connections to three interests (each 1-Lipschitz) and the histogram of
the interests that connections have.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report

from .linear_baselines import body, body_noise, linear_table

GENRES, FINER, USERS, CONNECTIONS = 6, 10, 1000, 30
FRIENDS, CLOSE = 0.7, 0.08
"""Share of connections that are chosen for their interests, and the distance over which their odds fall by e."""
EPSILON, DELTA = 1.0, 1e-6


def interests(rng: np.random.Generator) -> np.ndarray:
    """Points of the plane, those of a genre near each other; the largest distance is 1, as in the paper."""
    angle = 2 * np.pi * np.arange(GENRES) / GENRES
    genres = np.column_stack([np.cos(angle), np.sin(angle)])
    points = (genres[:, None] + rng.uniform(-0.2, 0.2, (GENRES, FINER, 2))).reshape(-1, 2)
    return points / np.linalg.norm(points[:, None] - points, axis=2).max()


def connections(distances: np.ndarray, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whom users follow, shape (users, connections): mostly people of near interests, otherwise the popular."""
    popular = rng.dirichlet(np.full(USERS, 0.5))
    odds = popular * np.exp(-distances[np.ix_(own, own)] / CLOSE)
    odds = FRIENDS * odds / odds.sum(axis=1, keepdims=True) + (1 - FRIENDS) * popular
    np.fill_diagonal(odds, 0.0)
    odds /= odds.sum(axis=1, keepdims=True)
    return np.array([rng.choice(USERS, size=CONNECTIONS, replace=False, p=row) for row in odds])


CHANGES = (
    (1, True, "few connections, a fine-grained change: the hardest to tell"),
    (1, False, "few connections: hard to tell"),
    (CONNECTIONS, True, "a fine-grained change: hard to tell"),
    (CONNECTIONS, False, "the easiest to tell"),
)


def semantics(
    followed: np.ndarray, space: md.MetricSpace, alpha: float, rng: np.random.Generator
) -> pd.DataFrame:
    """What the paper says of its example, and the privacy that 100 users have for such changes."""
    rows = []
    for count, fine, printed in CHANGES:
        moved = []
        for before in followed[:100]:
            after, at = before.copy(), rng.choice(CONNECTIONS, size=count, replace=False)
            genre = before[at] // FINER + (0 if fine else rng.integers(1, GENRES, size=count))
            after[at] = genre % GENRES * FINER + rng.integers(FINER, size=count)
            moved.append(md.emd(space.histogram(before), space.histogram(after), space))
        change = f"{count} of {CONNECTIONS}, to {'interests of the same genre' if fine else 'another genre'}"
        rows.append((change, printed, np.mean(moved), alpha * np.mean(moved), alpha * np.max(moved)))
    return pd.DataFrame(
        rows, columns=["change of a user's connections", "printed", "ours: distance", "ours: ε", "largest ε"]
    )


def run(report: Report) -> None:
    """Write the study."""
    points = interests(report.rng("interests"))
    space = md.MetricSpace.euclidean(points)
    size, rng = space.size, report.rng("connections")
    own = rng.choice(size, size=USERS, p=rng.dirichlet(np.full(size, 1.0)))
    followed = own[connections(space.distances, own, rng)]
    data = np.array([space.histogram(row) for row in followed])
    truth = data.mean(axis=0)
    fine = 1 / CONNECTIONS
    alpha = md.user_level.alpha_from_semantics(EPSILON, fraction=[1 / CONNECTIONS, 1.0], distance=[1.0, fine])
    report.text(
        "The graph is synthetic: nothing of it is measured, and the paper prints no numbers for its example. Users' interests are public, whom they follow is private."
    )
    report.text(
        f"{USERS} users follow {CONNECTIONS} others each; {size} interests in {GENRES} genres, distances at most 1. A connection's interest is "
        f"{space.distances[own[:, None], followed].mean():.2f} from the user's own on average, a random user's {space.distances[np.ix_(own, own)].mean():.2f}. α = {alpha:g} protects one connection of {CONNECTIONS} "
        f"replaced by any other, or all by ones whose interests are {fine:.3f} away (the nearest other interest is {np.median(np.sort(space.distances, axis=1)[:, 1]):.3f} away), with ε = {EPSILON:g}; "
        f"the connections of two users are {np.mean(md.emd(data[:60], data[60:120], space)):.2f} apart on average."
    )
    report.table(
        "semantics",
        semantics(followed, space, alpha, report.rng("changes")),
        caption=f"Printed and ours: ε = α × earth mover's distance, means of 100 users, where user-level privacy has ε = {EPSILON:g} for all",
        rtol=1e-4,
        digits=3,
    )
    report.text(
        "The order is the printed one, as it follows from the definition. All connections moved to another genre are hardly protected: user-level privacy protects them, at the price in the next table."
    )
    query = md.user_level.LinearQuery(space, space.distances[:, :: 2 * FINER], "distances")
    table = linear_table(query, alpha=alpha, epsilon=EPSILON, delta=DELTA, users=USERS)
    report.table(
        "interests",
        table,
        caption="Average distance of connections to three interests: root mean square ℓ₂ error",
        rtol=1e-4,
    )
    hull = body(query, metric=True)
    noise = body_noise(hull, 20000, report.rng("body")) / (alpha * USERS)
    stated = table.loc[
        table["mechanism"].str.endswith("[new]") & (table["model"] == "central"), "rms error"
    ].iloc[0]
    report.text(
        f"Drawn 20,000 times the noise of the slopes' body has error {np.sqrt((noise**2).sum(axis=1).mean()):.5f} where the formula says {stated:.5f}."
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
    measure("user level, Laplace", lambda: truth + rng.laplace(0, 2 / (USERS * EPSILON), size))
    rows.append(("no data: uniform", md.emd(np.full(size, 1 / size), truth, space), 0.0))
    columns = ["release, central", "error in the earth mover's distance", "standard error"]
    report.table(
        "histogram",
        pd.DataFrame(rows, columns=columns),
        caption=f"Histogram of connections' interests, {repeats} releases each",
        rtol=1e-3,
    )
    report.text(
        f"The metric pays for questions that change little between near interests, as distances do. The histogram changes as much for a near interest as for a far one, and there "
        f"user-level noise has less error ({rows[1][1]:.3f} for {rows[0][1]:.3f}) at a guarantee that is stronger: the connections of two users are told apart with ε = {EPSILON:g} at most, "
        f"not {alpha:g} times their distance."
    )
    fig, axes = figure(1, len(shown), width=10.0, height=3.4, sharey=True)
    for axis, (name, shares) in zip(axes, shown.items()):
        axis.scatter(*points.T, s=2000 * shares, color=COLOURS[0], alpha=0.6)
        axis.set(title=name, aspect="equal")
        axis.grid(False)
    report.figure(
        "connections", fig, caption="Connections by interest: the data and one private release each"
    )
    report.record(users=USERS, interests=size, alpha=alpha)
