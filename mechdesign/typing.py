"""Types that every room shares: arrays, and the one enumeration of how a solve ended."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Indices", "Status"]

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class Status(enum.StrEnum):
    """How a solve ended, in this package's own words.

    ``OPTIMAL``: value and lower bound are proved and as close as asked. ``FEASIBLE``: a mechanism that keeps its
    requirement, from a search that proves nothing about the best. ``GAP``: optimal to the gap stated, which is wider
    than the one asked for. ``LIMIT``: a limit was reached; the best so far, with the gap proved by then.
    ``UNCERTIFIED``: computed, but no exact law was asked for or found. ``INACCURATE``: a backend's answer within a looser tolerance than its own. The
    others come from backends and never from a result: there is no mechanism.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    GAP = "gap not reached"
    LIMIT = "limit"
    UNCERTIFIED = "not certified"
    INACCURATE = "inaccurate"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"
