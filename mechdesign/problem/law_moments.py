r"""Integrals against continuous laws: partial moments of order 0–2, and integrals of any function.

Uniform, normal, truncated normal and beta laws have moments in closed form; they are known by their class, never by
their name. Every other law is integrated through its density on a *mesh*: cells, halved until Gauss–Legendre on each
of them gives the mass that the distribution function says. What the nodes overlook (a narrow peak, a jump) so shows
as missing mass and is halved until it is found, and a cell at which the density is infinite ends as a point of that mass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special, stats

from mechdesign.errors import DesignError
from mechdesign.typing import Array, FrozenLaw, Indices, Numbers

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(21)
_LEVELS = (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.25, 0.5)
_MOST_CELLS = 1 << 14


def law_moments(law: FrozenLaw, edges: Array, within: tuple[float, float] | None = None) -> Array:
    """Return ∫ x^k dF, k = 0, 1, 2, over the cells between `edges`; shape (len(edges) − 1, 3).

    Parameters
    ----------
    law : frozen scipy.stats law
    edges : ndarray (K + 1,)
    within : (float, float), optional
        The part of the line that matters, for the mesh; by default from the first edge to the last.
    """
    dist, shapes, loc, scale = _parts(law)
    if type(dist) not in _CLOSED:
        return law_integrals(law, powers, edges, within, smooth=True)
    edges = np.clip(np.asarray(edges, dtype=float), *_support(law))
    if within is not None:
        edges = np.clip(edges, *within)
    return _CLOSED[type(dist)](edges, loc, scale, *shapes)


@lru_cache(maxsize=256)
def _support(law: FrozenLaw) -> tuple[float, float]:
    start, stop = law.support()
    return float(start), float(stop)


def powers(x: Array) -> Array:
    """x⁰, x¹ and x², shape (n, 3)."""
    return np.stack([np.ones_like(x), x, x * x], axis=1)


def law_density(law: FrozenLaw, x: Array) -> Array:
    """Return the density; 0 at a pole: the cell that a rounded node falls on it in is an ulp or two wide."""
    density = np.asarray(law.pdf(x), dtype=float)
    return np.where(np.isfinite(density), density, 0.0)


def has_closed_form(law: FrozenLaw) -> bool:
    """Whether `law_moments` needs no quadrature."""
    return type(law.dist) in _CLOSED


def law_variance(law: FrozenLaw) -> float:
    """Return the variance; of wide discrete Laplace laws, where SciPy's formula cancels, 1/(2 sinh²(a/2)).

    Examples
    --------
    >>> round(law_variance(stats.dlaplace(1e-15)) / 2e30, 9), law_variance(stats.norm(scale=2.0))
    (1.0, 4.0)
    """
    if type(law.dist) is type(stats.dlaplace):
        _, (rate,), _, _ = frozen_parts(law)
        if rate < 1400:
            return 0.5 / float(np.sinh(rate / 2)) ** 2
    return float(law.var())


def frozen_parts(law: FrozenLaw) -> tuple[Any, tuple[float, ...], float, float]:
    """Return generator, shapes, loc and scale of a frozen `scipy.stats` law.

    Raises
    ------
    DesignError
        Something else, or a law with arrays for parameters.
    """
    try:
        shapes, loc, scale = law.dist._parse_args(*law.args, **law.kwds)
        return law.dist, tuple(map(float, shapes)), float(loc), float(scale)
    except (AttributeError, TypeError, ValueError):
        raise DesignError.of("law", law, "must be a frozen scipy.stats distribution") from None


_parts = lru_cache(maxsize=256)(frozen_parts)


def mirrored_law(law: FrozenLaw, reach: float) -> bool:
    """Whether the law mirrors about zero on [−reach, reach]: by its parameters, or by its density on the whole mesh."""
    dist, shapes, loc, _ = _parts(law)
    if type(dist) is type(stats.norm):
        return loc == 0.0
    if type(dist) is type(stats.truncnorm):
        return loc == 0.0 and shapes[0] == -shapes[1]
    if has_closed_form(law):
        start, stop = _support(law)
        return start == -stop and shapes[:1] == shapes[1:]
    mesh = _mesh(law, -reach, reach)[0]
    x = np.abs((mesh[:-1, None] + np.diff(mesh)[:, None] * (1 + _NODES) / 2).ravel())
    with np.errstate(all="ignore"):
        here, there = np.asarray(law.pdf(x)), np.asarray(law.pdf(-x))
    return bool(np.all(np.abs(here - there) <= 1e-11 * np.maximum(here, there)))


# -- closed forms -----------------------------------------------------------------------------------------------------


def _uniform(edges: Array, loc: float, scale: float) -> Array:
    a, b = edges[:-1], edges[1:]
    width = (b - a) / scale
    return np.stack([width, width * (a + b) / 2, width * (a * a + a * b + b * b) / 3], axis=1)


def _moved(n0: Array, n1: Array, n2: Array, loc: float, scale: float) -> Array:
    """Moments of loc + scale·X from those of X."""
    second = loc**2 * n0 + 2 * loc * scale * n1 + scale**2 * n2
    return np.stack([n0, loc * n0 + scale * n1, second], axis=1)


def _normal(edges: Array, loc: float, scale: float, nearest: float = 0.0) -> Array:
    """Moments times exp(nearest²/2): `nearest` is the least |z| that matters, so that far tails do not vanish."""
    z = (edges - loc) / scale
    with np.errstate(invalid="ignore", over="ignore"):
        density = np.exp((nearest - np.abs(z)) * (nearest + np.abs(z)) / 2) / np.sqrt(2 * np.pi)
        tail = special.erfcx(np.abs(z) / np.sqrt(2)) * np.sqrt(np.pi / 2) * density
        weighted = np.where(np.isfinite(z), z, 0.0) * density
    # Differences of the smaller tail keep their relative accuracy.
    below, above, middle = np.diff(tail), -np.diff(tail), np.diff(special.ndtr(z))
    mass = np.where(z[:-1] > 0, above, np.where(z[1:] < 0, below, middle))
    return _moved(mass, -np.diff(density), mass - np.diff(weighted), loc, scale)


def _truncated_normal(edges: Array, loc: float, scale: float, a: float, b: float) -> Array:
    nearest = max(a, -b, 0.0)
    ends = loc + scale * np.array([a, b])
    return _normal(edges, loc, scale, nearest) / float(_normal(ends, loc, scale, nearest)[0, 0])


def _beta(edges: Array, loc: float, scale: float, a: float, b: float) -> Array:
    y, rest = np.clip((edges - loc) / scale, 0.0, 1.0), np.clip((loc + scale - edges) / scale, 0.0, 1.0)

    def cells(a: float) -> Array:
        # Right of the middle by the other tail: next to a pole at the end 1 − y has digits that y has not.
        below, above = special.betainc(a, b, y), special.betainc(b, a, rest)
        right = y > 0.5
        left = np.where(right, 1.0 - above, below)[1:] - below[:-1]
        return np.asarray(np.where(right[:-1], above[:-1] - above[1:], left))

    n0, n1, n2 = cells(a), cells(a + 1) * a / (a + b), cells(a + 2) * a * (a + 1) / ((a + b) * (a + b + 1))
    return _moved(n0, n1, n2, loc, scale)


_CLOSED: dict[type, Callable[..., Array]] = {
    type(stats.uniform): _uniform,
    type(stats.norm): _normal,
    type(stats.truncnorm): _truncated_normal,
    type(stats.beta): _beta,
}


# -- quadrature -------------------------------------------------------------------------------------------------------


def _gauss(function: Callable[[Array], Array], a: Array, b: Array) -> Array:
    """Gauss–Legendre of `function`, (n,) to (n, d), over the cells [a_k, b_k]; shape (K, d)."""
    half = (b - a) / 2
    x = ((a + b) / 2)[:, None] + half[:, None] * _NODES
    values = np.asarray(function(x.ravel()), dtype=float)
    return np.asarray(np.einsum("knd,n,k->kd", values.reshape(*x.shape, -1), _WEIGHTS, half))


def _mass(law: FrozenLaw, a: Numbers, b: Numbers) -> Array:
    """Mass between a and b, by the tail in which the difference keeps its accuracy."""
    return np.asarray(np.where(law.cdf(a) < 0.5, law.cdf(b) - law.cdf(a), law.sf(a) - law.sf(b)), dtype=float)


@lru_cache(maxsize=64)
def _mesh(law: FrozenLaw, start: float, stop: float) -> tuple[Array, Array]:
    """Edges in [start, stop] on which the density is resolved, and what to scale its integral by on each cell between.

    The scale makes the mass the distribution function's; it is 0 for a point of mass.
    """
    _, _, loc, scale = _parts(law)
    with np.errstate(all="ignore"):
        breaks = loc + scale * np.asarray(getattr(law.dist, "_hbins", ()), dtype=float)
        breaks = np.concatenate([breaks, law.ppf(_LEVELS), law.isf(_LEVELS)])
        edges = np.unique(np.append(breaks[(breaks > start) & (breaks < stop)], [start, stop]))
        # A distribution function that SciPy integrates itself is good to 1e-8 only.
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
        # Nodes are rounded, which a steep density feels.
        noise = np.minimum(4e-15 * np.maximum(np.abs(a), np.abs(b)) / (b - a), 0.1) * mass
        good = np.abs(whole - halves) <= 1e-14 * share + noise
        good &= np.abs(halves - mass) <= tolerance * share + noise
        point = ~good & ((b - a <= 1e-15 * width) | (middle <= a) | (middle >= b))
        point |= good & (b - a <= 1e-12 * np.maximum(np.abs(a), np.abs(b)))
        kept = good | point
        # Where the nodes overlooked what little mass there is, the caller cuts the cell.
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

    The cells of the law's mesh are halved until halving changes an integral by less than 1e-13 of that component's
    size over all cells (kinks of `function`), all cells at once. A polynomial (`smooth`) needs no halving.
    """
    edges = np.asarray(edges, dtype=float)
    start, stop = _support(law)
    within = (max(start, edges[0]), min(stop, edges[-1])) if within is None else within
    edges = np.minimum(np.maximum(edges, within[0]), within[1])
    mesh, factors = _mesh(law, *within)
    cuts = np.unique(np.concatenate([edges, mesh[(mesh > edges[0]) & (mesh < edges[-1])]]))
    a, b = cuts[:-1], cuts[1:]
    owner = np.clip(np.searchsorted(edges, a, side="right") - 1, 0, len(edges) - 2)
    factor = factors[np.clip(np.searchsorted(mesh, a, side="right") - 1, 0, len(factors) - 1)]
    done: list[tuple[Array, Indices]] = []
    if (point := factor == 0).any():  # cells that are points of mass
        values = np.asarray(function((a[point] + b[point]) / 2), dtype=float)
        done.append((values * _mass(law, a[point], b[point])[:, None], owner[point]))
    a, b, owner, factor = a[~point], b[~point], owner[~point], factor[~point]

    def rule(a: Array, b: Array) -> tuple[Array, Array]:
        """Integrals of the density and of `function` times it: the second is divided by the first, times the mass."""

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
        # A component that cancels to nothing is known only to the rounding of what cancelled, the larger ones.
        floor = 1e-13 * size + 2e-15 * float(size.max(initial=0.0))
        error = np.abs(left + right - coarse)
        error[error <= floor] = 0.0
        # Around kinks the error falls to a quarter; rounding in `function` stays, however fine the cells.
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
    """Return the mean of an even function under a continuous law that mirrors about 0, to where next to no mass is left.

    Examples
    --------
    >>> round(symmetric_mean(stats.laplace(scale=2.0), np.abs), 12)
    2.0
    """
    top = min(float(law.support()[1]), float(law.isf(1e-15)) + 4 * float(law.std()))
    return 2 * float(law_integrals(law, lambda t: function(t)[:, None], np.array([0.0, top]))[0, 0])
