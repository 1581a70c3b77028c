"""Linear programs written from the definition, every row listed, for SciPy: what tables and noise on a lattice cost at least."""

from typing import Any

import numpy as np
from scipy import optimize, sparse

from mechdesign.evidence.serialize import dumps
from mechdesign.verifier.reading import Refused
from mechdesign.verifier.verify import verify

FINE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}  # δ may be 1e-6


def refused(result: Any) -> list[str]:
    """What the stand-alone check refuses of a result, or of the text of its file."""
    try:
        return [
            c
            for c, _, holds in verify(result if isinstance(result, str) else dumps(result)).rows
            if not holds
        ]
    except Refused as error:
        return [str(error)]


def optimum(*program: Any) -> float | None:
    """What SciPy finds; None where it finds that nothing is feasible, or nothing at all."""
    found = optimize.linprog(*program, method="highs", options=FINE)
    return float(found.fun) if found.status == 0 else None


def least_table(
    costs: Any, losses: dict[tuple[int, int], float], delta: float = 0.0, prior: Any = None, means: Any = None
) -> float | None:
    """The least mean, or without a prior worst, cost of a table p (rows, answers) with Σ_y [p(x, y) − e^ε p(z, y)]₊ <= δ for each pair x, z.

    `means`: the answers as numbers, and the mean that they have in each row.
    """
    (rows, answers), pairs = costs.shape, list(losses)
    units, one = np.eye(rows), np.ones((1, answers))
    shrink = np.exp(-np.array(list(losses.values())))[:, None]  # each row is divided by e^ε
    apart = shrink * units[[x for x, _ in pairs]] - units[[z for _, z in pairs]]
    above = sparse.kron(apart, np.eye(answers)).tocsr()
    right, extra = np.zeros(above.shape[0]), 0
    if delta:  # an excess of each pair and answer
        extra = len(pairs) * answers
        sums = sparse.kron(np.eye(len(pairs)), one)
        excess = -sparse.kron(np.diag(shrink[:, 0]), np.eye(answers))
        above = sparse.block_array([[above, excess], [None, sums]]).tocsr()
        right = np.append(right, np.full(len(pairs), delta))
    equal, sides = sparse.kron(units, one), np.ones(rows)
    if means is not None:
        equal = sparse.vstack([equal, sparse.kron(units, np.array(means[0])[None])])
        sides = np.append(sides, means[1])
    objective = np.zeros(rows * answers + extra)
    if prior is not None:
        objective[: rows * answers] = (np.asarray(prior)[:, None] * costs).ravel()
    else:  # the value, above the cost of each row
        each = sparse.block_diag([row[None] for row in np.asarray(costs, dtype=float)])
        value = sparse.vstack([sparse.csr_array((above.shape[0], 1)), -np.ones((rows, 1))])
        above = sparse.hstack(
            [sparse.vstack([above, sparse.hstack([each, sparse.csr_array((rows, extra))])]), value]
        )
        right, objective = np.append(right, np.zeros(rows)), np.append(objective, 1.0)
    rest = sparse.csr_array((equal.shape[0], len(objective) - rows * answers))
    return optimum(objective, above, right, sparse.hstack([equal, rest]), sides)


def least_noise(costs: Any, points: list[tuple[float, float]], shifts: range) -> float | None:
    """The least cost of masses on these places with Σ_j [p_j − e^ε p_{j+s}]₊ <= δ at every point (ε, δ) and every shift, both ways.

    Beyond the places is nothing. A point with δ = 0 is held between them alone: a relaxation, whose ends cost too much to matter.
    """
    size, here = len(costs), sparse.eye_array(len(costs)).tocsr()
    asked = [(e, d, s) for e, d in points for k in shifts for s in (k, -k)]
    private, count = [], len(asked)
    for e, d, s in asked:
        row = here - np.exp(e) * sparse.eye_array(size, k=s).tocsr()
        inside = np.array([0 <= i + s < size or d > 0 for i in range(size)], dtype=float)
        private.append(sparse.diags_array(inside) @ row)
    sums = sparse.kron(sparse.eye_array(count), np.ones((1, size)))
    above = sparse.block_array([[sparse.vstack(private), -sparse.eye_array(count * size)], [None, sums]])
    right = np.concatenate([np.zeros(count * size), [d for _, d, _ in asked]])
    padded = np.concatenate([costs, np.zeros(count * size)])
    return optimum(padded, above, right, (np.arange(len(padded)) < size).astype(float)[None], [1.0])
