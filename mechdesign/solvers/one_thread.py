"""Keep the linear algebra of small matrices on one thread.

OpenBLAS spreads even 100 × 100 products over all cores and waits for its threads by spinning: when the cores have
other work (a test suite, a parallel search) that makes the iteration thirty times slower, and when they do not it gains
little at these sizes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

__all__ = ["one_thread"]


@lru_cache(maxsize=1)
def _controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread (without threadpoolctl: one that changes nothing)."""
    controller = _controller()
    return nullcontext() if controller is None else controller.limit(limits=1, user_api="blas")
