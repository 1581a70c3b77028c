r"""A month of daily locations in one city, released under earth mover's distance privacy.

1,000 users report where they spent each of 30 days, as one of the cells of a grid over a synthetic city. Distances
are great-circle kilometres; α is per kilometre. The statement to be protected chooses it: *one day of thirty moved by
5 km, or the whole month moved by 150 m, with ε₀ = 1*: α = min(1/(5/30), 1/0.15) = 6 per km.

Two questions are asked of the data: the average distance to the centre (a linear query, 1-Lipschitz), and the
histogram of visits. User-level baselines protect any change of a user's month with (ε, δ) = (1, 1e-6).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report

USERS, DAYS, EPSILON, DELTA = 1000, 30, 1.0, 1e-6
SIDE, SPAN = 7, 0.09  # cells per side; half the side of the city in degrees of latitude
CENTRE = (45.0, 5.0)
REPEATS = 200


def city() -> md.MetricSpace:
    """Centres of a SIDE × SIDE grid of 3.3 km cells, with great-circle distances."""
    latitude = CENTRE[0] + np.linspace(-SPAN, SPAN, SIDE)
    longitude = CENTRE[1] + np.linspace(-SPAN, SPAN, SIDE) / np.cos(np.radians(CENTRE[0]))
    rows, columns = np.meshgrid(latitude, longitude, indexing="ij")
    return md.MetricSpace.geodesic(rows.ravel(), columns.ravel())


def tracks(space: md.MetricSpace, rng: np.random.Generator) -> np.ndarray:
    """Daily cells, shape (users, days): work on most days, home on others, now and then an errand."""
    east = np.cos(np.radians(CENTRE[0]))
    kilometre = np.array([1.0, 1.0 / east]) / 111.195

    def around(centres: np.ndarray, spread: float) -> np.ndarray:
        return centres + rng.normal(0.0, spread, centres.shape) * kilometre

    quarters = np.array(CENTRE) + np.array([[-6.0, -5.0], [5.0, -3.0], [3.0, 6.0], [-4.0, 4.0]]) * kilometre
    homes = around(quarters[rng.choice(4, USERS, p=[0.35, 0.3, 0.2, 0.15])], 1.5)
    offices = around(np.where(rng.random((USERS, 1)) < 0.7, np.array(CENTRE), quarters[1]), 1.0)
    kind = rng.choice(3, size=(USERS, DAYS, 1), p=[0.6, 0.3, 0.1])
    errands = around(np.broadcast_to(np.array(CENTRE), (USERS, DAYS, 2)), 5.0)
    where = np.where(kind == 0, offices[:, None], np.where(kind == 1, homes[:, None], errands))
    return space.nearest(where.reshape(-1, 2)).reshape(USERS, DAYS)


def average_distance(space: md.MetricSpace, data: np.ndarray, alpha: float) -> pd.DataFrame:
    """Error of the private average distance to the centre, in metres."""
    centre = int(space.nearest([CENTRE])[0])
    query = md.user_level.LinearQuery.distance_to(space, centre)
    rows = []
    for model, users, averaged in (("central", USERS, 1), ("local", 1, USERS)):
        exact = md.LinearRelease(query, alpha, model=model, users=users)
        gaussian = md.LinearRelease(query, alpha, model=model, users=users, gaussian=True, delta=DELTA)
        baseline = query.spread() / (users * EPSILON) * np.sqrt(2 / averaged)
        for name, error in (
            ("EMD, Laplace", exact.rms(averaged=averaged)),
            ("EMD, Gaussian", gaussian.rms(averaged=averaged)),
            ("user-level, Laplace", baseline),
        ):
            rows.append({"model": model, "release": name, "rms_error_m": 1000 * error})
    return pd.DataFrame(rows)


def run(report: Report) -> None:
    space = city()
    data = tracks(space, report.rng("tracks"))
    noise = report.rng("noise")
    truth = space.histogram(data.ravel())
    alpha = md.user_level.alpha_from_semantics(EPSILON, fraction=[1 / DAYS, 1], distance=[5.0, 0.15])
    implied = md.EMDPrivacy(alpha, DELTA).user_level(space)
    users = space.histogram(data)
    to_centre = md.user_level.LinearQuery.distance_to(space, int(space.nearest([CENTRE])[0]))
    report.text(
        f"{USERS} users, {DAYS} days, {space.size} cells, {space.diameter:.1f} km across. α = {alpha:g} per km protects "
        f"one day moved by 5 km, or the month by 150 m, with ε = {EPSILON:g}. Two users' months are "
        f"{np.mean(md.emd(users[:-1], users[1:], space)):.1f} km apart on average; the guarantee between them is weak, "
        f"and the user-level DP it implies, ε = {implied.epsilon:.0f}, is none: that is what the metric gives up."
    )

    distance = average_distance(space, data, alpha)
    report.table(
        "average_distance", distance, caption="Average distance to the centre: root mean square error"
    )
    released = md.LinearRelease(to_centre, alpha, users=USERS)
    report.text(
        f"True average {to_centre(truth)[0]:.4f} km; one central release: {released.sample(users, rng=noise)[0]:.4f} km "
        f"(expected error {1000 * released.error():.2f} m)."
    )

    histogram = md.user_level.LinearQuery.histogram(space)
    rows, maps = [], {}

    def measure(model: str, name: str, draw, **facts) -> None:
        estimates = [draw() for _ in range(REPEATS)]
        errors = [md.emd(md.user_level.simplex_projection(e, space), truth, space) for e in estimates]
        maps[model, name] = md.user_level.simplex_projection(estimates[0], space)
        rows.append({"model": model, "release": name, **facts, "emd_km": float(np.mean(errors))})

    central = md.LinearRelease(histogram, alpha, users=USERS)
    measure("central", "EMD, linear", lambda: central.sample(truth, rng=noise))
    user_scale = 2 / (USERS * EPSILON)
    measure("central", "user-level, Laplace", lambda: truth + noise.laplace(0, user_scale, space.size))
    for name, accounting, radius in (
        ("composition", "composition", None),
        ("numerical", "numerical", None),
        ("numerical, within radius", "numerical", EPSILON / alpha),
    ):
        item = md.ItemwiseRelease(
            space, alpha, delta=DELTA, items=DAYS, users=USERS, accounting=accounting, radius=radius
        )
        estimate = md.FrequencyEstimate(item.channel, space=space)
        counts = np.bincount(data.ravel(), minlength=space.size)

        def shuffled(channel=item.channel, estimate=estimate, counts=counts):
            # Of shuffled reports only their counts are left: one multinomial draw per cell.
            return estimate.fit_counts(noise.multinomial(counts, channel.dense).sum(axis=0)).estimate

        measure("shuffled", f"EMD, item-wise, {name}", shuffled, item_alpha=item.item_alpha)
    local = md.LinearRelease(histogram, alpha, model="local")
    measure("local", "EMD, linear", lambda: local.sample(users, rng=noise).mean(axis=0))
    flat = 2 / EPSILON
    measure(
        "local",
        "user-level, Laplace",
        lambda: (users + noise.laplace(0, flat, users.shape)).mean(axis=0),
    )
    uniform = np.full(space.size, 1 / space.size)
    rows.append({"model": "none", "release": "no data: uniform", "emd_km": md.emd(uniform, truth, space)})
    table = pd.DataFrame(rows)
    report.table(
        "visit_histogram",
        table,
        caption=f"Visit histogram: mean EMD error over {REPEATS} releases, projected on the simplex",
        rtol=1e-5,
    )
    report.text(
        "With one δ for all pairs up to the diameter, shuffling gains nothing at this α: group privacy over "
        f"{DAYS} steps raises δ by e^{alpha * space.diameter:.0f}. Protecting the changes that were named, EMD up to "
        f"{1000 * EPSILON / alpha:.0f} m with ε = {EPSILON:g}, it allows the larger item budget of the line `within radius`. "
        "The linear release of the histogram is better than either on so few cells, even in the local model; what the "
        "item-wise release gives is items, for any later use, not one histogram."
    )

    assert space.points is not None
    shown = [
        ("data", truth),
        ("central, EMD, linear", maps["central", "EMD, linear"]),
        ("shuffled, within radius", maps["shuffled", "EMD, item-wise, numerical, within radius"]),
        ("shuffled, composition", maps["shuffled", "EMD, item-wise, composition"]),
    ]
    fig, axes = figure(1, 4, width=11.0, height=3.1, sharey=True)
    latitude, longitude = space.points.T
    half = SPAN / (SIDE - 1)
    wide = half / np.cos(np.radians(CENTRE[0]))
    extent = (longitude.min() - wide, longitude.max() + wide, latitude.min() - half, latitude.max() + half)
    for ax, (title, values) in zip(axes, shown):
        image = ax.imshow(
            values.reshape(SIDE, SIDE),
            origin="lower",
            extent=extent,
            aspect=1 / np.cos(np.radians(CENTRE[0])),
            vmin=0.0,
            vmax=float(truth.max()),
            cmap="viridis",
        )
        ax.plot([CENTRE[1]], [CENTRE[0]], marker="+", color=COLOURS[1])
        ax.set_title(title, fontsize=8)
        ax.set_xlabel("longitude")
        ax.grid(False)
    axes[0].set_ylabel("latitude")
    fig.colorbar(image, ax=axes, label="share of visits", shrink=0.8)
    report.figure(
        "map", fig, caption="Visits per cell: the data and one private release each; + is the centre"
    )
    report.record(users=USERS, days=DAYS, alpha=alpha, delta=DELTA, repeats=REPEATS)
