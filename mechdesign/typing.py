"""Types that every room shares: arrays, and how a solve ended."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import matplotlib.figure

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.ArrayLike
"""What a caller gives where numbers are wanted: a number, nested lists, an array, a series; checked where it enters."""
Values: TypeAlias = Any
"""What SciPy hands a law: a number or an array of any shape, and the same comes back."""
Weights: TypeAlias = tuple[tuple[int, ...], ...]
"""Integer weights of the outputs (columns) of every input (row)."""
FrozenLaw: TypeAlias = Any
"""A frozen law of `scipy.stats`, or of a generator that a user registered."""
Figure: TypeAlias = "matplotlib.figure.Figure"
"""What a plot returns; Matplotlib is imported when the first one is drawn."""
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What a JSON document holds."""
Randomness: TypeAlias = np.random.Generator | int | None
"""What a caller gives as `rng`: a generator, a seed, or None for the system's randomness."""


class Status(enum.StrEnum):
    """How a solve ended, in this package's own words.

    ``OPTIMAL``: value and lower bound are as close as asked, and the bound is one for every mechanism that answers the
    question. ``BEST``: as close as asked, in a smaller class: independent noise of one law, one family, one menu; others may
    do better. ``GAP``: a bound for the design's class is known, farther from the value than asked. ``FEASIBLE``: a mechanism
    that keeps its requirement, from a search that bounds no more than a larger class, or nothing. ``LIMIT``: a limit was reached, or Ctrl-C was pressed; the best so far, with the gap proved by then.
    ``UNCERTIFIED``: computed, but no exact law was asked for or found. ``INACCURATE``: a backend's answer within a looser tolerance than its own. The
    others come from backends and never from a result: there is no mechanism.
    """

    OPTIMAL = "optimal"
    BEST = "best of its class"
    FEASIBLE = "feasible"
    GAP = "gap not reached"
    LIMIT = "limit"
    UNCERTIFIED = "not certified"
    INACCURATE = "inaccurate"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"
