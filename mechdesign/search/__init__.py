"""Grids, resumable stores, and parallel runs over them."""

from mechdesign.search.grid import Grid
from mechdesign.search.parallel import run_chunks
from mechdesign.search.store import Store

__all__ = ["Grid", "Store", "run_chunks"]
