"""What a design states in CVXPY and what its wing solves many times, in numbers, are the same linear program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mechdesign import solvers
from mechdesign.noise.optimal.lattice_program import LatticeProgram, Line, lattice_model
from mechdesign.solvers import Deadline, LinearProgram, Model

Both = tuple[Model, LinearProgram]


def lattice(delta: float, mirrored: bool) -> Both:
    count = 9 if mirrored else 17
    owner = np.abs(np.arange(-8, 9)) if mirrored else np.arange(17)
    mass = np.where(np.arange(count) > 0, 2.0, 1.0) if mirrored else np.ones(count)
    line = Line(owner, np.ones(17), mass, 4, mirrored)
    cost = np.append(np.abs(np.arange(count) - (0 if mirrored else 8)) * mass, 50.0)
    program = LatticeProgram(line, cost, points=[(1.0, delta)], deadline=Deadline(None))
    return lattice_model(line, cost, points=[(1.0, delta)], shifts=[4]), program.program


PROGRAMS: dict[str, Callable[[], Both]] = {
    "lattice": lambda: lattice(0.0, True),
    "lattice with delta": lambda: lattice(0.3, True),
    "lattice, not mirrored": lambda: lattice(0.3, False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_agree(name: str) -> None:
    model, program = PROGRAMS[name]()
    assert program.answer().value == pytest.approx(
        solvers.solve(model.problem, "highs").value, rel=1e-9, abs=1e-10
    )
    declared = program.to_cvxpy()
    again = solvers.solve(declared, "clarabel").value + program.constant
    assert again == pytest.approx(program.value, rel=1e-6, abs=1e-8)
