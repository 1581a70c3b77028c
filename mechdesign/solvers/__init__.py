"""Solver backends behind one registry; see `available` for what is installed and what each can do."""

from mechdesign.solvers.base import Capabilities, Model, Solution, Solver, Status
from mechdesign.solvers.compiled import CompiledLP
from mechdesign.solvers.highs import HighsSession
from mechdesign.solvers.registry import available, get, register, solve, unregister
from mechdesign.solvers.sequence import SolveSequence

__all__ = [
    "Capabilities",
    "CompiledLP",
    "HighsSession",
    "Model",
    "Solution",
    "SolveSequence",
    "Solver",
    "Status",
    "available",
    "get",
    "register",
    "solve",
    "unregister",
]
