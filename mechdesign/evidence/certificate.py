"""Words of evidence: how a claim was checked and what it is about; and what is said where parts do not fit together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mechdesign.errors import DesignError, MechdesignError, ResultFormatError

__all__ = [
    "ABOUT_FILE",
    "ABOUT_MECHANISM",
    "CLAIMED",
    "OWN_WORDS",
    "PROVED",
    "RECOMPUTED",
    "Check",
    "close",
    "fitting",
]

PROVED = "proved"
RECOMPUTED = "recomputed"
CLAIMED = "claimed"
ABOUT_MECHANISM, ABOUT_FILE = "mechanism", "file"
FIT = "its parts fit together"
OWN_WORDS = "seconds and notes, and that what has no result has none, are the file's own words"
"""What nothing in a comparison or a frontier shows."""

Check = tuple[str, str, float, bool]
"""A claim in words, how it was checked (`PROVED`, `RECOMPUTED` or `CLAIMED`), the margin left, whether it holds."""


@contextmanager
def fitting() -> Iterator[None]:
    """Say that parts do not fit together where computing with them fails: a file was changed."""
    try:
        with np.errstate(all="ignore"):  # of absurd numbers nothing follows that a check would let pass
            yield
    except MechdesignError as error:
        if isinstance(error, DesignError):  # an argument that no design would have been made with
            raise ResultFormatError(f"the result's parts do not fit together: {error!s:.200}") from error
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise ResultFormatError("the result's parts do not fit together") from error


def close(stated: Any, fresh: Any) -> bool:
    """Whether a cell of a table is the one computed anew: the same word, or the same number to 1e-9 (or none, twice).

    Examples
    --------
    >>> close(1.0, 1.0 + 1e-12), close(math.nan, None), close("proved", "recomputed")
    (True, True, False)
    """
    stated, fresh = (v.item() if isinstance(v, np.generic) else v for v in (stated, fresh))
    if isinstance(fresh, (str, bool)):
        return bool(stated == fresh)
    if isinstance(stated, (str, bool)):
        return False
    stated, fresh = (math.nan if v is None else float(v) for v in (stated, fresh))
    if math.isnan(stated) or math.isnan(fresh):
        return math.isnan(stated) and math.isnan(fresh)
    return bool(abs(stated - fresh) <= 1e-9 * abs(fresh))
