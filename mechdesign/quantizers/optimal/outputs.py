"""What the outputs of a quantizer may be, beside a list of values: a fine grid, or the best few of an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import one_of, positive, settle, whole
from mechdesign.typing import Array

__all__ = ["Alphabet", "BinSearch"]


@serializable("alphabet")
@dataclass(frozen=True)
class Alphabet:
    """Outputs on a uniform grid of [−max_abs, max_abs].

    Parameters
    ----------
    max_abs : float
        Largest absolute output R.
    step : float
        Distance of neighbours, adjusted down so that it divides 2R.

    Examples
    --------
    >>> Alphabet(max_abs=3.0, step=0.05).size
    121
    """

    max_abs: float
    step: float

    def __post_init__(self) -> None:
        settle(self, max_abs=positive("max_abs", self.max_abs), step=positive("step", self.step))
        if self.step > 2 * self.max_abs:
            raise DesignError.of("step", self.step, f"must be at most 2*max_abs = {2 * self.max_abs:g}")
        if 2 * self.max_abs / self.step - 1e-9 > 4096:
            raise DesignError.of(
                "step", self.step, "gives more outputs than the 4097 that are allowed, at most"
            )

    @property
    def size(self) -> int:
        """Number of outputs."""
        return math.ceil(2 * self.max_abs / self.step - 1e-9) + 1

    @property
    def values(self) -> Array:
        """The outputs, mirrored exactly."""
        grid = np.linspace(-self.max_abs, self.max_abs, self.size)
        return (grid - grid[::-1]) / 2


@serializable("bin-search")
@dataclass(frozen=True)
class BinSearch:
    """Search the best m outputs within [−max_abs, max_abs].

    Neighbours stay 10⁻³ · min(R, w)/m apart, w the length of the input range: two outputs so near are worth no more
    than one, and a wide range R costs no resolution. The bound beside the search is for any outputs, however near.

    Parameters
    ----------
    m : int
        Number of outputs, 2 to 64.
    max_abs : float
        Largest absolute output R; without one the outermost outputs would run away (with vanishing probability).
    symmetric : bool or None
        Mirror the outputs about zero; None does so when prior, loss and range mirror.
    starts : int
        Starting points of the search.
    exhaustive : bool
        For m ≤ 4 mirrored outputs, try a grid of all of them too.
    seed : int
        For the starts drawn at random.
    """

    m: int
    max_abs: float
    symmetric: bool | None = None
    starts: int = 4
    exhaustive: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("symmetric", self.symmetric, (None, True, False))
        one_of("exhaustive", self.exhaustive, (True, False))
        settle(self, m=whole("m", self.m, 2, 64), max_abs=positive("max_abs", self.max_abs))
        settle(self, starts=whole("starts", self.starts, 1), seed=whole("seed", self.seed, 0))
