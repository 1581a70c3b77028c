"""δ of composed privacy losses from below (or above), on a grid, by sums of positive numbers: no transform, no cancellation.

From below losses are rounded down and masses dropped: what is found is below the truth but for a relative 1e-10.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

Losses = tuple[Any, Any]
"""Values of the privacy loss under the first law, and their masses; a value may be infinite."""
POINTS = 6000
DROPPED = 1e-18


class Grid:
    """Losses on multiples of a step, summed over independent coordinates."""

    def __init__(self, step: float, *, above: bool = False) -> None:
        self.step, self.above = step, above
        self.start, self.mass, self.infinite = 0, np.ones(1), 0.0
        self.offset = (
            0.0  # the sum of the largest losses, exactly: laws with atoms there lose nothing to the grid
        )

    def add(self, losses: Losses, count: int = 1) -> None:
        """Convolve with `count` independent losses."""
        values, masses = (np.asarray(v, dtype=float) for v in losses)
        finite = np.isfinite(values)
        one = Grid(self.step, above=self.above)
        one.offset = float(values[finite].max(initial=-np.inf)) if finite.any() else 0.0
        below = (values[finite] - one.offset) / self.step
        index = (np.ceil(below) if self.above else np.floor(below)).astype(np.int64)
        one.infinite, one.start = float(masses[~finite & (values > 0)].sum()), int(index.min(initial=0))
        one.mass = np.bincount(index - one.start, weights=masses[finite], minlength=1)
        while count:
            if count % 2:
                self._join(one)
            count //= 2
            if count:
                one._join(one)

    def _join(self, other: Grid) -> None:
        whole, more = self.infinite, other.infinite
        self.infinite = whole + more - whole * more
        self.offset += other.offset
        self.mass, self.start = np.convolve(self.mass, other.mass), self.start + other.start
        kept = np.flatnonzero(self.mass > DROPPED * self.mass.max())
        first, last = int(kept[0]), int(kept[-1]) + 1
        if self.above:
            self.infinite += float(self.mass[:first].sum() + self.mass[last:].sum())
        self.mass, self.start = self.mass[first:last], self.start + first

    @property
    def values(self) -> Any:
        return (
            self.offset * (1 + 1e-15 * (1 if self.above else -1))
            + (self.start + np.arange(len(self.mass))) * self.step
        )

    def delta(self, epsilon: float, mu: float = 0.0) -> float:
        """δ at ε of the sum, and of Gaussian noise of this μ beside it."""
        left = epsilon - self.values
        if mu:
            # the infinite part is counted once, what is finite composes with the Gaussian
            return self.infinite + math.fsum(self.mass * gaussian_deltas(left, mu))
        return self.infinite + math.fsum(self.mass * np.maximum(-np.expm1(np.minimum(left, 0.0)), 0.0))


def gaussian_deltas(epsilon: Any, mu: float) -> Any:
    """δ(ε) of Gaussian noise at many ε, negative ones included, in doubles; 0 where it is below 1e-250."""
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    first = special.log_ndtr(a)
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(np.maximum(first, -700)) * -np.expm1(
            np.minimum(special.log_ndtr(b) + epsilon - first, 0.0)
        )


def laplace_losses(ratio: float, step: float) -> Losses:
    """The loss of Laplace noise at a shift of `ratio` scales: atoms at ±ratio, density e^((l − ratio)/2)/4 between."""
    edges = np.append(np.arange(-ratio, ratio, step), ratio)
    between = (np.exp((edges[1:] - ratio) / 2) - np.exp((edges[:-1] - ratio) / 2)) / 2
    return np.concatenate([[-ratio], edges[:-1], [ratio]]), np.concatenate(
        [[math.exp(-ratio) / 2], between, [0.5]]
    )


def step_of(ratios: Any, epsilon: float) -> float:
    """A step at which the sum of these losses has some thousand points."""
    return max(2 * math.fsum(ratios), 1e-300) / POINTS


# One coordinate of a law, from its density ----------------------------------------------------------------------

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


def log_density(name: str, shapes: tuple[float, ...], t: Any) -> Any:
    """Of a symmetric law at unit scale, up to a constant."""
    u = np.abs(t)
    match name:
        case "norm":
            return -u * u / 2
        case "laplace":
            return -u
        case "logistic":
            return -u - 2 * np.log1p(np.exp(-u))
        case "gennorm":
            return -(u ** shapes[0])
        case "flipped_huber":
            b = shapes[0]
            return np.where(u <= b, -b * u, -(u * u + b * b) / 2)
        case "osgt":
            return -u * u / 2 - shapes[0] * u
        case "hypsecant":
            return -u - np.log1p(np.exp(-2 * u))
        case "truncated_laplace":
            return np.where(u <= shapes[0], -u, -np.inf)
    raise KeyError(name)


def _cells(name: str, shapes: tuple[float, ...], ratio: float, cells: int) -> tuple[Any, Any]:
    """Ends of cells between all kinks of both densities, and the normalised density's nodes on them."""
    far = 1.0
    while log_density(name, shapes, far) - log_density(name, shapes, 0.0) > -75 and far < 1e9:
        far *= 1.2
    kinks = [0.0, -ratio]
    if name in ("flipped_huber", "truncated_laplace"):
        kinks += [sign * shapes[0] - moved for sign in (1, -1) for moved in (0, ratio)]
    if name == "truncated_laplace":
        far = shapes[0]
    edges = np.concatenate([np.linspace(-far - ratio, far, cells), kinks])
    edges = np.unique(np.clip(edges, -far - ratio, far))
    return edges, (edges[:-1, None] + edges[1:, None]) / 2 + np.diff(edges)[:, None] / 2 * _NODES


def density_losses(name: str, shapes: tuple[float, ...], ratio: float, cells: int = 4000) -> Losses:
    """Losses at a shift of `ratio` scales, from below: the least loss of each cell (it rises along the line)."""
    if name == "staircase":
        return staircase_losses(*shapes, ratio)
    edges, t = _cells(name, shapes, ratio, cells)
    with np.errstate(divide="ignore", invalid="ignore"):
        masses = (np.exp(log_density(name, shapes, t)) * np.diff(edges)[:, None] / 2 * _WEIGHTS).sum(axis=1)
        masses /= masses.sum() * (1 + 1e-10)  # of the quadrature
        # just inside the cell: a density may end at its edge
        left = edges[:-1] + 1e-9 * np.diff(edges)
        loss = log_density(name, shapes, left) - log_density(name, shapes, left + ratio)
    return loss[masses > 0] - 1e-12, masses[masses > 0]


def staircase_losses(epsilon: float, gamma: float, ratio: float) -> Losses:
    """Levels e^(−kε) on [k, k + γ), e^(−(k+1)ε) on [k + γ, k + 1), mirrored: all cells of both."""
    far = math.ceil(min(75 / epsilon, 1e6) + ratio + 2)  # further out all steps lose alike
    steps = np.add.outer(np.arange(-far, far + 1), [-gamma, 0.0, gamma]).ravel()
    edges = np.unique(np.concatenate([steps, steps - ratio]))
    edges = edges[(edges > -far + ratio + 1) & (edges < far - ratio - 1)]
    middle = (edges[1:] + edges[:-1]) / 2

    def level(t: Any) -> Any:
        u = np.abs(t)
        return np.floor(u) + (u - np.floor(u) >= gamma)

    masses = np.exp(-epsilon * level(middle)) * np.diff(edges)
    return epsilon * (level(middle + ratio) - level(middle)) - 1e-12, masses / (masses.sum() * (1 + 1e-10))


def renyi(name: str, shapes: tuple[float, ...], ratio: float, order: float) -> float:
    """The Rényi divergence of one coordinate at a shift."""
    if name == "staircase":
        loss, masses = staircase_losses(*shapes, ratio)
        return math.log(float(masses @ np.exp((order - 1) * loss))) / (order - 1)
    edges, t = _cells(name, shapes, ratio, 4000)
    here, there = log_density(name, shapes, t), log_density(name, shapes, t + ratio)
    widths = np.diff(edges)[:, None] / 2 * _WEIGHTS
    total = (np.exp(here) * widths).sum()
    return math.log(float((np.exp(order * here + (1 - order) * there) * widths).sum() / total)) / (order - 1)
