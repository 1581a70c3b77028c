r"""A symmetric log-concave law from its log density alone: its tail, to relative accuracy, and the inverse of its loss.

SciPy's own tails are often 1 − cdf, worthless below 1e-16. Here the mass of [0, ∞) is summed from the outside in, over
panels on which the log density falls by about one, each by Gauss–Legendre quadrature and halved until halving changes
nothing. A log density that is not symmetric, not concave, or does not integrate to one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.typing import Array, Numbers

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_DEEPEST = 690.0
"""How far the log density is followed below its value at 0."""
_UNIT = 2.0**-53


def panel_integrals(
    density: Callable[[Array], Array], edges: Array, *, each: bool = False
) -> tuple[Array, Array]:
    """Integrate over the panels between `edges`, halving where that changes much; return all edges and masses.

    What is much is measured by the total, or by each panel's own mass.
    """
    edges = np.unique(edges)

    def rule(a: Array, b: Array) -> Array:
        t = a[:, None] + (b - a)[:, None] * (1 + _NODES) / 2
        return density(t) @ _WEIGHTS * (b - a) / 2

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
        # A kink leaves one half of its panel rough; where all halves are, it is rounding and not curvature.
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
        Vectorised; of a law symmetric about 0, of about unit scale.
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
        if not abs(2 * self._beyond[0] - 1) <= 1e-9:
            raise DesignError.of(
                "law",
                name,
                f"has a density of total {2 * self._beyond[0]:.12g}, not one: nothing can be proved",
            )

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
        # The log density carries an error of its own; over a short gap it shows in the slope.
        noise = 1e-7 * np.abs(slope) + 64 * _UNIT * (1 + np.abs(level[1:])) / gap
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
        nodes = u[:, None] + width[:, None] * (1 + _NODES) / 2
        upper: Array = np.exp(self._levels(nodes)) @ _WEIGHTS * width / 2 + self._beyond[panel + 1]
        upper = upper.reshape(t.shape)
        return np.where(t >= 0, upper, 1 - upper)

    def isf(self, s: Numbers) -> Array:
        """About the point beyond which the mass s lies, from the panels' masses."""
        s = np.asarray(s, dtype=float)
        held = self._beyond > 0
        logs: Array = np.log(self._beyond[held])[::-1]
        with np.errstate(divide="ignore"):
            small = np.minimum(s, 1 - s)
            u: Array = np.interp(np.log(small), logs, self._edges[held][::-1])
        # within the last panel the logarithm ends nowhere
        left = self._beyond[held][-1]
        last = self._edges[-1] - (self._edges[-1] - self._edges[held][-1]) * small / left
        u = np.where(small < left, last, u)
        return np.asarray(np.where(s <= 0.5, u, -u))


_MESH = 256  # points of the mesh that brackets many roots
_OFF = 1e-14
"""How far a loss of a grid may be off, which the grid adds: below it the loss is rounding far out, and bisected in vain."""
_STEPS = 160
"""Of an interpolation and two halvings each, at most: 53 halvings end any bracket."""


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
        if w.size > _MESH:  # many roots: a mesh that all share leaves little of each bracket
            end = float(high[~never].max(initial=scale))
            mesh = np.append(np.linspace(0.0, end, _MESH), np.geomspace(end * 1e-9, end, _MESH))
            mesh.sort()
            reached = np.maximum.accumulate(loss(mesh))
            cell = np.searchsorted(reached, w, side="right")
            low, high = mesh[cell - 1], mesh[np.minimum(cell, mesh.size - 1)]
        root = _roots(loss, w, low, high, _OFF * min(1.0, float(w.max())) if w.size > 1 else 0.0)
        out = np.where(never, np.where(beyond, edge, np.inf), root).reshape(v.shape)
        return np.where(v >= 0, out, -out)

    return inverse


def _roots(loss: Callable[[Array], Array], w: Array, low: Array, high: Array, off: float) -> Array:
    """Where the loss is w, to within `off` or the resolution of doubles: false position (Illinois), halved where it is slow."""
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
