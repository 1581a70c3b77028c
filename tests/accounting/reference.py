"""δ(ε) of one coordinate to 60 digits, by mpmath, from densities written down here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from scipy import stats

from mechdesign.noise.families import discrete_gaussian
from mechdesign.noise.laws import flipped_huber, osgt, staircase, truncated_laplace

DIGITS = 60
Function = Callable[[Any], Any]


def _q(x: Any) -> Any:
    return mp.erfc(x / mp.sqrt(2)) / 2


def _huber_tail(u: Any, b: Any) -> Any:
    tail = mp.sqrt(2 * mp.pi) * mp.exp(-b * b / 2) * _q(max(u, b))
    return tail if u >= b else tail + ((mp.exp(-b * u) - mp.exp(-b * b)) / b if b else 0)


# Name: (log density up to a constant, upper tail for u >= 0), both at unit scale, of |t|.
LAWS: dict[str, Callable[..., tuple[Function, Function]]] = {
    "norm": lambda: (lambda u: -u * u / 2, _q),
    "laplace": lambda: (lambda u: -u, lambda u: mp.exp(-u) / 2),
    "logistic": lambda: (lambda u: -u - 2 * mp.log1p(mp.exp(-u)), lambda u: 1 / (1 + mp.exp(u))),
    "gennorm": lambda p: (
        lambda u: -(u**p),
        lambda u: mp.gammainc(1 / p, u**p, mp.inf, regularized=True) / 2,
    ),
    "flipped_huber": lambda b: (
        lambda u: -b * u if u <= b else -(u * u + b * b) / 2,
        lambda u: _huber_tail(u, b) / _huber_tail(mp.mpf(0), b) / 2,
    ),
    "osgt": lambda b: (lambda u: -u * u / 2 - b * u, lambda u: _q(u + b) / _q(b) / 2),
    "truncated_laplace": lambda c: (
        lambda u: -u if u <= c else -mp.inf,
        lambda u: (mp.exp(-u) - mp.exp(-c)) / (1 - mp.exp(-c)) / 2 if u <= c else mp.mpf(0),
    ),
    "hypsecant": lambda: (lambda u: -u - mp.log1p(mp.exp(-2 * u)), lambda u: 2 / mp.pi * mp.atan(mp.exp(-u))),
    "truncnorm": lambda a, c: (
        lambda u: -u * u / 2 if u <= c else -mp.inf,
        lambda u: (_q(u) - _q(c)) / (1 - 2 * _q(c)) if u <= c else mp.mpf(0),
    ),
}


def _continuous(name: str, shapes: list[Any], ratio: Any, epsilon: Any) -> Any:
    log_density, upper = LAWS[name](*shapes)
    half = ratio / 2

    def loss(t: Any) -> Any:
        there = log_density(abs(t + half))
        return mp.inf if there == -mp.inf else log_density(abs(t - half)) - there

    def survival(t: Any) -> Any:
        return upper(t) if t >= 0 else 1 - upper(-t)

    low, high = mp.mpf(0), mp.mpf(1)
    while loss(high) <= epsilon:
        low, high = high, 2 * high
        if high > 1e9:
            return mp.mpf(0)
    for _ in range(int(mp.mp.prec)):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) <= epsilon else (low, middle)
    return survival(high - half) - mp.exp(epsilon) * survival(high + half)


def _staircase(epsilon0: Any, gamma: Any, ratio: Any, epsilon: Any) -> Any:
    b = mp.exp(-epsilon0)
    level = (1 - b) / (2 * (gamma + b * (1 - gamma)))
    high = level * (min(gamma, ratio) + ratio * b / (1 - b) + max(0, min(gamma, ratio - gamma)))
    return high * max(0, 1 - mp.exp(epsilon - epsilon0))


def _discrete(weight: Function, far: int, shift: int, epsilon: Any) -> Any:
    masses = [weight(k) for k in range(-far, far + 1)]
    total = mp.fsum(masses)
    growth = mp.exp(epsilon)
    padded = masses[shift:] + [weight(far + k) for k in range(1, shift + 1)]
    return mp.fsum(max(0, a - growth * c) for a, c in zip(masses, padded)) / total


def delta(law: Any, sensitivity: float, epsilon: float) -> Any:
    """δ(ε) of a frozen law, all of its doubles taken as exact."""
    shapes, _, scale = law.dist._parse_args(*law.args, **law.kwds)
    name, shapes, scale = law.dist.name, [mp.mpf(float(s)) for s in shapes], mp.mpf(float(scale))
    with mp.workdps(DIGITS + 50):
        ratio, e = mp.mpf(sensitivity) / scale, mp.mpf(epsilon)
        if name == "staircase":
            value = _staircase(*shapes, ratio, e)
        elif name == "dlaplace":
            value = _discrete(lambda k: mp.exp(-shapes[0] * abs(k)), int(400 / shapes[0]) + 9, int(ratio), e)
        elif name == "discrete_gaussian":
            far = int(40 * shapes[0]) + 9
            value = _discrete(lambda k: mp.exp(-(k**2) / (2 * shapes[0] ** 2)), far, int(ratio), e)
        else:
            value = _continuous(name, shapes, ratio, e)
    with mp.workdps(DIGITS):
        return +value


def random_law(rng: np.random.Generator) -> tuple[Any, float]:
    """A law of any family, and a sensitivity."""
    scale = float(np.exp(rng.uniform(-3, 3)))
    ratio = float(np.exp(rng.uniform(-4, 2)))
    name = rng.choice([*LAWS, "staircase", "dlaplace", "discrete_gaussian"])
    shape = float(np.exp(rng.uniform(-2, 2)))
    continuous: dict[str, Callable[[], Any]] = {
        "norm": lambda: stats.norm(scale=scale),
        "laplace": lambda: stats.laplace(scale=scale),
        "logistic": lambda: stats.logistic(scale=scale),
        "gennorm": lambda: stats.gennorm(1 + min(shape, 4), scale=scale),
        "flipped_huber": lambda: flipped_huber(shape, scale=scale),
        "osgt": lambda: osgt(3 * shape, scale=scale),
        "truncated_laplace": lambda: truncated_laplace(8 * shape, scale=scale),
        "hypsecant": lambda: stats.hypsecant(scale=scale),
        "truncnorm": lambda: stats.truncnorm(-3 * shape, 3 * shape, scale=scale),
        "staircase": lambda: staircase(shape, rng.uniform(0.05, 0.95), scale=scale),
    }
    if name in continuous:
        return continuous[str(name)](), scale * (min(ratio, 0.999) if name == "staircase" else ratio)
    shift = int(rng.integers(1, 4))
    if name == "dlaplace":
        return stats.dlaplace(shape / 2), shift
    return discrete_gaussian(3 * shape), shift
