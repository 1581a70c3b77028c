r"""Integrals against continuous laws: of any function, variances and absolute moments, and tails of log-concave laws to relative accuracy.

A law is integrated through its density on a *mesh*: cells are halved until Gauss–Legendre quadrature
reproduces the mass that the distribution function gives them. A narrow peak or a jump between nodes shows as missing
mass, so its cell is halved until it is found; a cell with an infinite density ends as a point mass.

**Tails.** SciPy's own tails are often 1 − cdf, worthless below 1e-16. Here the log density of a symmetric log-concave law gives its tail and
the inverse of its loss: the mass of [0, ∞) is summed from the outside in, over panels on which the log density falls by about one,
each by Gauss–Legendre quadrature and halved until halving changes nothing. Other log densities are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from scipy import special, stats

from mechdesign.checks import cached_parts, frozen_parts, refuse, support_of
from mechdesign.doubles import ROUNDED, UNIT
from mechdesign.errors import DesignError
from mechdesign.typing import Array, FrozenLaw, Indices, Numbers

Generator: TypeAlias = stats.rv_continuous | stats.rv_discrete
"""SciPy's class for a family of laws."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(21)
_LEVELS = (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.25, 0.5)
_MOST_CELLS = 1 << 14


def law_density(law: FrozenLaw, x: Array) -> Array:
    """Return the density, 0 at a pole: a node rounds onto a pole only in a cell that is an ulp or two wide."""
    density = np.asarray(law.pdf(x), dtype=float)
    return np.where(np.isfinite(density), density, 0.0)


STAIRCASES = "staircase", "answering_staircase"
"""Names of the laws whose density is constant on steps."""
FINITE = "must have a finite, positive variance: choose other units where doubles do not hold it"


def law_variance(law: FrozenLaw) -> float:
    """Return the variance; for discrete Laplace laws as 1/(2 sinh²(a/2)), as SciPy's formula cancels for wide ones.

    Examples
    --------
    >>> round(law_variance(stats.dlaplace(1e-15)) / 2e30, 9), law_variance(stats.norm(scale=2.0))
    (1.0, 4.0)
    """
    if type(law.dist) is type(stats.dlaplace):
        _, (rate,), _, _ = frozen_parts(law)
        if rate < 1400:
            return 0.5 / float(np.sinh(rate / 2)) ** 2
    with np.errstate(over="ignore"):  # infinite where no double holds it
        return float(law.var())


def of_scipy(dist: Generator) -> str:
    """Return the name of one of SciPy's own generators, else "": a user's law may have the same name."""
    own = getattr(stats, str(dist.name), None)
    return str(dist.name) if own is not None and type(dist) is type(own) else ""


_NORMAL = {"norm": (), "gennorm": (2.0,)}
"""Shapes at which SciPy's families are normal."""


def is_gaussian(law: FrozenLaw) -> bool:
    """Whether the law is normal: `norm`, or the normal member of a larger family (b = 0, β = 2), at loc 0."""
    dist, shapes, loc, _ = frozen_parts(law)
    ours = hasattr(dist, "privacy_loss") and dist.name in ("flipped_huber", "osgt")
    return loc == 0 and shapes == ((0.0,) if ours else _NORMAL.get(of_scipy(dist)))


def mirrored_density(law: FrozenLaw, reach: float) -> bool:
    """Whether the density is symmetric about zero on [−reach, reach], at the mesh's nodes."""
    mesh = _mesh(law, -reach, reach)[0]
    x = np.abs((mesh[:-1, None] + np.diff(mesh)[:, None] * (1 + _NODES) / 2).ravel())
    with np.errstate(all="ignore"):
        here, there = np.asarray(law.pdf(x)), np.asarray(law.pdf(-x))
    return bool(np.all(np.abs(here - there) <= 1e-11 * np.maximum(here, there)))


# -- quadrature -------------------------------------------------------------------------------------------------------


def _gauss(function: Callable[[Array], Array], a: Array, b: Array) -> Array:
    """Integrate `function`, (n,) to (n, d), over the cells [a_k, b_k] by Gauss–Legendre quadrature; shape (K, d)."""
    half = (b - a) / 2
    x = ((a + b) / 2)[:, None] + half[:, None] * _NODES
    values = np.asarray(function(x.ravel()), dtype=float)
    return np.asarray(np.einsum("knd,n,k->kd", values.reshape(*x.shape, -1), _WEIGHTS, half))


def _mass(law: FrozenLaw, a: Numbers, b: Numbers) -> Array:
    """Return the mass between a and b, as a difference of the smaller tail, which keeps its accuracy."""
    return np.asarray(np.where(law.cdf(a) < 0.5, law.cdf(b) - law.cdf(a), law.sf(a) - law.sf(b)), dtype=float)


@lru_cache(maxsize=64)
def _mesh(law: FrozenLaw, start: float, stop: float) -> tuple[Array, Array]:
    """Return edges of cells in [start, stop] that resolve the density, and a factor for the integral over each cell.

    The factor makes a cell's mass that of the distribution function; it is 0 for a point mass.
    """
    _, _, loc, scale = cached_parts(law)
    with np.errstate(all="ignore"):
        breaks = loc + scale * np.asarray(getattr(law.dist, "_hbins", ()), dtype=float)
        breaks = np.concatenate([breaks, law.ppf(_LEVELS), law.isf(_LEVELS)])
        edges = np.unique(np.append(breaks[(breaks > start) & (breaks < stop)], [start, stop]))
        # A distribution function that SciPy integrates numerically is accurate to 1e-8 only.
        for tolerance in (1e-12, 1e-8):
            found = _resolved(law, edges, tolerance)
            if found is not None:
                return found
    raise DesignError.of("prior", law.dist.name, "its density and its distribution function disagree")


def _resolved(law: FrozenLaw, edges: Array, tolerance: float) -> tuple[Array, Array] | None:
    def rule(a: Array, b: Array) -> Array:
        return _gauss(lambda x: law_density(law, x)[:, None], a, b)[:, 0]

    a, b, width = edges[:-1], edges[1:], float(edges[-1] - edges[0])
    share = float(_mass(law, edges[0], edges[-1]))
    done: list[tuple[Array, Array]] = []
    count = 0
    while a.size:
        count += len(a)
        if count > _MOST_CELLS:
            return None
        middle, mass = (a + b) / 2, _mass(law, a, b)
        whole, halves = rule(a, b), rule(a, middle) + rule(middle, b)
        # Rounding of the nodes changes the values of a steep density.
        noise = np.minimum(4e-15 * np.maximum(np.abs(a), np.abs(b)) / (b - a), 0.1) * mass
        good = np.abs(whole - halves) <= 1e-14 * share + noise
        good &= np.abs(halves - mass) <= tolerance * share + noise
        point = ~good & ((b - a <= 1e-15 * width) | (middle <= a) | (middle >= b))
        point |= good & (b - a <= 1e-12 * np.maximum(np.abs(a), np.abs(b)))
        kept = good | point
        # If the nodes missed the small mass of a cell, the caller halves it.
        close = (np.abs(whole - mass) <= 0.2 * mass) & (whole > 0) & (tolerance < 1e-10)
        factor = np.where(close, mass / np.where(close, whole, 1.0), 1.0)
        done.append((a[kept], np.where(point, 0.0, factor)[kept]))
        a, b = np.concatenate([a[~kept], middle[~kept]]), np.concatenate([middle[~kept], b[~kept]])
    starts, factors = (np.concatenate(part) for part in zip(*done))
    order = np.argsort(starts)
    return np.append(starts[order], edges[-1]), factors[order]


def law_integrals(
    law: FrozenLaw,
    function: Callable[[Array], Array],
    edges: Array,
    within: tuple[float, float] | None = None,
    *,
    smooth: bool = False,
) -> Array:
    """Return ∫ function dF over each cell between `edges`, `function` mapping (n,) to (n, d); shape (K, d).

    All cells of the law's mesh are halved at once, until halving changes each component by less than 1e-13 of its size
    over all cells: `function` may have kinks. A polynomial (`smooth`) needs no halving.
    """
    edges = np.asarray(edges, dtype=float)
    start, stop = support_of(law)
    within = (max(start, edges[0]), min(stop, edges[-1])) if within is None else within
    edges = np.minimum(np.maximum(edges, within[0]), within[1])
    mesh, factors = _mesh(law, *within)
    cuts = np.unique(np.concatenate([edges, mesh[(mesh > edges[0]) & (mesh < edges[-1])]]))
    a, b = cuts[:-1], cuts[1:]
    owner = np.clip(np.searchsorted(edges, a, side="right") - 1, 0, len(edges) - 2)
    factor = factors[np.clip(np.searchsorted(mesh, a, side="right") - 1, 0, len(factors) - 1)]
    done: list[tuple[Array, Indices]] = []
    if (point := factor == 0).any():  # cells that are point masses
        values = np.asarray(function((a[point] + b[point]) / 2), dtype=float)
        done.append((values * _mass(law, a[point], b[point])[:, None], owner[point]))
    a, b, owner, factor = a[~point], b[~point], owner[~point], factor[~point]

    def rule(a: Array, b: Array) -> tuple[Array, Array]:
        """Integrate the density, and `function` times the density; the caller scales the latter to the exact mass."""

        def both(x: Array) -> Array:
            density = law_density(law, x)[:, None]
            return np.concatenate([density, np.asarray(function(x), dtype=float) * density], axis=1)

        table = _gauss(both, a, b)
        return table[:, 0], table[:, 1:]

    mass, coarse = rule(a, b)
    mass, coarse = factor * mass, factor[:, None] * coarse
    size = np.abs(coarse).sum(axis=0)
    stalled, before = np.zeros(len(size), dtype=int), np.full(len(size), np.inf)
    for _ in range(0 if smooth else 48):
        middle = (a + b) / 2
        masses, parts = rule(np.concatenate([a, middle]), np.concatenate([middle, b]))
        (low, high), (left, right) = np.split(masses, 2), np.split(parts, 2)
        share = (mass / np.where(low + high > 0, low + high, 1.0))[:, None]
        left, right = share * left, share * right
        size = np.maximum(size, np.abs(left).sum(axis=0) + np.abs(right).sum(axis=0))
        # A component that cancels to zero is accurate only to the rounding of the larger ones that cancelled.
        floor = 1e-13 * size + 2e-15 * float(size.max(initial=0.0))
        error = np.abs(left + right - coarse)
        error[error <= floor] = 0.0
        # Around kinks halving quarters the error; rounding errors of `function` remain however fine the cells.
        total = error.sum(axis=0)
        stalled, before = np.where(total > 0.8 * before, stalled + 1, 0), total
        rough = (error[:, stalled < 4] > 0).any(axis=1)
        if np.count_nonzero(rough) > _MOST_CELLS // 2:
            break
        done.append(((left + right)[~rough], owner[~rough]))
        mass = np.concatenate([(share[:, 0] * low)[rough], (share[:, 0] * high)[rough]])
        a, b = np.concatenate([a[rough], middle[rough]]), np.concatenate([middle[rough], b[rough]])
        coarse, owner = np.concatenate([left[rough], right[rough]]), np.tile(owner[rough], 2)
        if not len(a):
            break
    found = np.zeros((len(edges) - 1, coarse.shape[1]))
    for parts, owners in (*done, (coarse, owner)):
        np.add.at(found, owners, parts)
    return found


def absolute_moment(noise: str, order: float) -> float:
    r"""Return :math:`E|T|^p` at scale 1: :math:`2^{p/2}\Gamma((p+1)/2)/\sqrt\pi` or :math:`\Gamma(p+1)`.

    Examples
    --------
    >>> absolute_moment("gaussian", 2), absolute_moment("laplace", 2)
    (1.0, 2.0)
    """
    if noise == "laplace":
        return float(special.gamma(order + 1))
    if order == 2:
        return 1.0
    return float(2 ** (order / 2) * special.gamma((order + 1) / 2) / math.sqrt(math.pi))


def symmetric_mean(law: FrozenLaw, function: Callable[[Array], Array]) -> float:
    """Return the mean of an even function under a continuous law symmetric about 0, truncated where 1e-15 of mass is left.

    Examples
    --------
    >>> round(symmetric_mean(stats.laplace(scale=2.0), np.abs), 12)
    2.0
    """
    top = min(float(law.support()[1]), float(law.isf(1e-15)) + 4 * float(law.std()))
    return 2 * float(law_integrals(law, lambda t: function(t)[:, None], np.array([0.0, top]))[0, 0])


_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(24)
_DEEPEST = 690.0
"""Depth below its value at 0 to which the log density is integrated."""


def panel_integrals(
    density: Callable[[Array], Array], edges: Array, *, each: bool = False
) -> tuple[Array, Array]:
    """Integrate over the panels between `edges`, halve those that halving changes, and return all edges and masses.

    The tolerance is relative to the total, or with `each` to the panel's own mass.
    """
    edges = np.unique(edges)

    def rule(a: Array, b: Array) -> Array:
        t = a[:, None] + (b - a)[:, None] * (1 + _PANEL_NODES) / 2
        return density(t) @ _PANEL_WEIGHTS * (b - a) / 2

    a, b = edges[:-1], edges[1:]
    whole = rule(a, b)
    starts: list[Array] = []
    masses: list[Array] = []
    total = 0.0
    for _ in range(40):
        middle = (a + b) / 2
        left, right = rule(a, middle), rule(middle, b)
        total = max(total, float(np.sum(np.abs(whole))))
        rough = np.abs(left + right - whole) > (1e-12 * np.abs(whole) if each else 1e-13 * total)
        starts.append(a[~rough])
        masses.append((left + right)[~rough])
        before = a.size
        a, b = np.concatenate([a[rough], middle[rough]]), np.concatenate([middle[rough], b[rough]])
        whole = np.concatenate([left[rough], right[rough]])
        # A kink leaves one half of its panel rough; if all halves stay rough, the cause is rounding.
        if not 0 < a.size <= max(before, 8):
            break
    starts.append(a)
    masses.append(whole)
    start, mass = np.concatenate(starts), np.concatenate(masses)
    order = np.argsort(start)
    return np.append(start[order], edges[-1]), mass[order]


class Tail:
    """The survival function of a law given by its log density.

    Parameters
    ----------
    log_density : callable
        Vectorised log density of a law symmetric about 0, of about unit scale.
    top : float
        End of the support.
    name : str
        For messages.

    Raises
    ------
    DesignError
        The law is not symmetric, visibly not log-concave, or its density does not integrate to one.

    Examples
    --------
    >>> from scipy import stats
    >>> tail = Tail(stats.hypsecant.logpdf, np.inf, "hypsecant")
    >>> f"{float(tail.sf(50.0)):.6e}"   # 2/π atan(e^{-50})
    '1.227880e-22'
    """

    def __init__(self, log_density: Callable[[Array], Array], top: float, name: str) -> None:
        self._log_density, self._name = log_density, name
        mesh = self._mesh(top)
        level = self._levels(mesh)
        self._check(mesh, level, name)
        self._edges, mass = panel_integrals(lambda t: np.exp(self._levels(t)), mesh, each=True)
        self._beyond = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        self.reach = float(self._edges[-1])
        allowed = f"has a density of total {2 * self._beyond[0]:.12g}, not one: nothing can be proved"
        refuse(not abs(2 * self._beyond[0] - 1) <= 1e-9, "law", name, allowed)

    def _levels(self, t: Array) -> Array:
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(self._log_density(t), dtype=float)
        except Exception as error:  # a user's own density may raise anything
            said = f"has a density that raises {type(error).__name__}: {error!s:.80}"
            raise DesignError.of("law", self._name, said) from error
        return np.where(np.isnan(value), -np.inf, value)

    def _mesh(self, top: float) -> Array:
        """Points at which the log density has fallen by given amounts, by bisection."""
        peak = float(self._levels(np.zeros(1))[0])
        high = min(1.0, top)
        while high < top and high < 1e12 and self._levels(np.array([high]))[0] > peak - _DEEPEST:
            high = min(2 * high, top)
        falls = np.concatenate([[0.1, 0.3, 0.6], np.arange(1.0, 30.0), np.geomspace(30, _DEEPEST, 160)])
        a, b = np.zeros(falls.size), np.full(falls.size, high)
        for _ in range(60):
            middle = (a + b) / 2
            above = self._levels(middle) > peak - falls
            a, b = np.where(above, middle, a), np.where(above, b, middle)
        end = high if high == top else float(a.max())
        return np.unique(np.concatenate([np.linspace(0.0, end, 9), a, [end]]))

    def _check(self, mesh: Array, level: Array, name: str) -> None:
        inner = mesh[level > level[0] - 60]
        level = level[: inner.size]
        mirrored = self._levels(-inner)
        if inner.size < 4 or not np.allclose(level, mirrored, rtol=1e-9, atol=1e-9):
            raise DesignError.of("law", name, "must be symmetric about zero")
        gap = np.diff(inner)
        slope = np.diff(level) / gap
        # Rounding errors of the log density show in the slope over a short gap.
        noise = 1e-7 * np.abs(slope) + 64 * UNIT * (1 + np.abs(level[1:])) / gap
        if np.any(np.diff(slope) > noise[1:] + noise[:-1]) or np.any(slope > noise):
            raise DesignError.of(
                "law",
                name,
                "must have a density that SciPy evaluates as log-concave; only then is the loss monotone and d = Δ "
                "the worst case",
            )

    def sf(self, t: Numbers) -> Array:
        """P(T > t)."""
        t = np.asarray(t, dtype=float)
        u = np.minimum(np.abs(t).ravel(), self.reach)
        panel = np.clip(np.searchsorted(self._edges, u, side="right") - 1, 0, self._edges.size - 2)
        width = self._edges[panel + 1] - u
        nodes = u[:, None] + width[:, None] * (1 + _PANEL_NODES) / 2
        upper: Array = np.exp(self._levels(nodes)) @ _PANEL_WEIGHTS * width / 2 + self._beyond[panel + 1]
        upper = upper.reshape(t.shape)
        return np.where(t >= 0, upper, 1 - upper)

    def isf(self, s: Numbers) -> Array:
        """Return approximately the point beyond which the mass is s, interpolated from the panels' masses."""
        s = np.asarray(s, dtype=float)
        held = self._beyond > 0
        logs: Array = np.log(self._beyond[held])[::-1]
        with np.errstate(divide="ignore"):
            small = np.minimum(s, 1 - s)
            u: Array = np.interp(np.log(small), logs, self._edges[held][::-1])
        # in the last panel the log of the mass falls to −∞
        left = self._beyond[held][-1]
        last = self._edges[-1] - (self._edges[-1] - self._edges[held][-1]) * small / left
        u = np.where(small < left, last, u)
        return np.asarray(np.where(s <= 0.5, u, -u))


_STEPS = 160
"""Most steps of false position; every third halves the bracket, so that they end any."""


def inverse_of(
    loss: Callable[[Array], Array], scale: float, edge: float = math.inf
) -> Callable[[Array], Array]:
    """Return the generalised inverse of an odd, non-decreasing loss, infinite beyond `edge`.

    Examples
    --------
    >>> inverse = inverse_of(lambda t: t + t**3, 1.0)
    >>> inverse(np.array([-10.0, 2.0])).round(12).tolist()
    [-2.0, 1.0]
    """
    last = edge * (1 - 8 * np.finfo(float).eps)
    jump = float(loss(np.array(last))) if 0 < edge < math.inf else math.inf

    def inverse(v: Array) -> Array:
        v = np.asarray(v, dtype=float)
        w = np.abs(v).ravel()
        beyond = w >= jump
        if beyond.all():
            return np.where(v >= 0, edge, -edge)
        most = last if jump < math.inf else math.inf
        high = np.full_like(w, min(scale, most))
        for _ in range(600):
            short = (loss(high) <= w) & (high < min(most, 1e300)) & ~beyond
            if not short.any():
                break
            high = np.where(short, np.minimum(2 * high, most), high)
        never = (loss(high) <= w) | beyond
        w, low = np.where(never, 0.0, w), np.zeros_like(high)
        root = _roots(loss, w, low, high, ROUNDED * min(1.0, float(w.max())) if w.size > 1 else 0.0)
        out = np.where(never, np.where(beyond, edge, np.inf), root).reshape(v.shape)
        return np.where(v >= 0, out, -out)

    return inverse


def _roots(loss: Callable[[Array], Array], w: Array, low: Array, high: Array, off: float) -> Array:
    """Solve loss = w to within `off` or the resolution of doubles, by false position (Illinois) with bisection where that is slow."""
    root, left = low.copy(), np.arange(w.size)
    with np.errstate(all="ignore"):  # beyond a support's end the loss is infinite
        below, above = loss(low) - w, loss(high) - w
        side = np.zeros(w.size)
        for step in range(_STEPS):
            x = high - above * ((high - low) / (above - below))
            between = (low < x) & (x < high)
            x = np.where(between, x, low / 2 + high / 2)
            if step % 3 == 2 and step > 6:
                x = low / 2 + high / 2
            f = loss(x) - w
            root[left] = x
            open_ = (np.abs(f) > off) & (high - low > 4e-16 * high)
            if not open_.any():
                break
            over = f > 0
            # the end that stays twice counts half: false position would creep up to one side
            above = np.where(over, f, np.where(side < 0, above / 2, above))
            below = np.where(over, np.where(side > 0, below / 2, below), f)
            low, high = np.where(over, low, x), np.where(over, x, high)
            side = np.where(over, 1.0, -1.0)
            if not open_.all():
                left, w, low, high = left[open_], w[open_], low[open_], high[open_]
                below, above, side = below[open_], above[open_], side[open_]
    return root
