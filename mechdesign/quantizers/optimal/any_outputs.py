r"""A proved lower bound for a search: no mechanism with outputs anywhere in its range does better, whatever family it is of.

`OptimalQuantizer` on a grid of the range leaves multipliers of a bound for the grid's outputs, and `DualPieces` says what
they prove for outputs in between: somewhat less, as reduced costs dip there. One more number makes up for most of
that: a level :math:`\kappa \ge 0` by which every line is lowered, so that the bound is

.. math:: -\kappa + \text{constant} + \min_k \Bigl( \int h(c_k(x) + \kappa)\, dF - (C^\top \nu)_k \Bigr) \{1/\rho \text{ or } 1\},

concave in κ. The grid is as fine as the error that is to be expected asks for: the dip is about (h/error)² of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import optimize

from mechdesign.errors import InfeasibleError, MechdesignError
from mechdesign.problem.losses import Loss
from mechdesign.problem.spine import Bound
from mechdesign.quantizers.common.design import QuantizerDesign
from mechdesign.quantizers.common.dual_pieces import DualPieces, OutputSpace
from mechdesign.quantizers.common.proofs import proved_bound
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.quantizers.optimal.methods import check_feasible, uncapped
from mechdesign.quantizers.optimal.solution import dual_pieces, fill_proof
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Numbers

_GAP = 1e-4
_COARSE, _FINE = 32, 192  # cells of the input range, on a first grid and at most
_GROWTH = 0.1  # of cells beyond what mechanisms of least squared error use
_SHARE = 0.1  # of the expected error that a cell is wide
_MARGIN = 16  # cells that are even beyond what mechanisms of least squared error use
_ATOMS = 64  # point masses that are outputs of the grid
_POINTS = 10_000  # point masses at most: more take seconds to verify
_ENTRIES = 300_000  # cells times point masses at most
_STEPS = 30  # on one grid: all that Newton's method needs; of cutting planes for a thousand samples some need 45, 11 s
_LEVELS = 16  # values of κ that are tried


def any_outputs(design: QuantizerDesign, bins: Numbers, deadline: Deadline) -> DualPieces | None:
    """Multipliers of a lower bound for all that a design of quantizers may choose from; None where none are found.

    Parameters
    ----------
    design : Design
        With privacy (`PureDP`), prior, loss, input range, maybe a largest bias, and the `output_space` that it searches.
    bins : array
        The mechanism's outputs, which are all where nothing is searched.
    deadline : Deadline
        Half of what is left is for outputs that are given, all of it for the fine grid; the coarse one is solved to its gap in a tenth of a second.
    """
    if not design.loss.polynomial or len(design.prior.atoms[0]) > _POINTS:
        return None
    try:
        return _multipliers(design, design.output_space, bins, deadline)
    except InfeasibleError:  # a theorem's word: no mechanism, nothing to bound
        return None
    except MechdesignError as error:
        deadline.failed(error, "no lower bound is stated of mechanisms with any such outputs")
        return None


def loss_bounds(design: QuantizerDesign, bins: Numbers, deadline: Deadline) -> Iterator[Bound]:
    """Yield the lower bound for all that a `QuantizerDesign` may choose from, if any above 0 is proved; `bins` as in `any_outputs`."""
    duals = any_outputs(design, bins, deadline)
    if duals is not None and (bound := proved_bound(design, duals, bins)).value > 0:
        yield bound


def _largest_bias(design: QuantizerDesign, places: Sequence[float]) -> float:
    """The bias allowed, or the largest that outputs at these places can have."""
    low, high = design.input_range
    return min(design.max_bias, float(max(high - places[0], places[-1] - low)))


def _multipliers(
    design: QuantizerDesign, space: OutputSpace | None, bins: Numbers, deadline: Deadline
) -> DualPieces | None:
    if space is None or not space.between:
        found = _solved(design, bins if space is None else space.points, deadline.part(0.5))
        return found and (found[0] if space is None else replace(found[0], outputs=np.array(found[1].bins)))
    (low, high), most = design.input_range, _ENTRIES // max(1, len(design.prior.atoms[0]))
    found = _solved(design, _grid(design, space, (high - low) / min(_COARSE, most)), Deadline(None))
    if found is None:
        return None
    cell = max(_SHARE * _error(design.loss, found[2]), (high - low) / min(_FINE, most))
    if cell < (high - low) / _COARSE and not deadline.passed:
        found = _solved(design, _grid(design, space, cell), deadline) or found
    return _lowered(found[1], replace(found[0], outputs=np.array(found[1].bins), between=True))


def _solved(
    design: QuantizerDesign, bins: Numbers, deadline: Deadline
) -> tuple[DualPieces, OptimalQuantizer, float] | None:
    """Multipliers for some outputs, the design that they are of, and its value."""
    bias = _largest_bias(design, np.asarray(bins).tolist())
    question = OptimalQuantizer(
        bins, design.privacy, design.prior, design.loss, max_bias=bias, input_range=design.input_range
    )
    check_feasible(question.floor_problem, design.privacy.epsilon, question.units)
    solution = uncapped(question.floor_problem, _GAP, deadline=deadline, steps=_STEPS)
    if solution.proof is None or not math.isfinite(solution.lower_bound):
        return None
    proof = solution.proof
    if len(question.floor_problem.atoms[0]) > _ATOMS:  # one line for each, instead of those of every cut
        proof = fill_proof(question.floor_problem, solution.floors, solution.multipliers)
    return dual_pieces(question.floor_problem, proof, question.units), question, solution.value


def _error(loss: Loss, value: float) -> float:
    """The error whose loss is `value`; 0 where rounding leaves less than no loss."""
    if value <= 0:
        return 0.0
    first, second = loss.absolute, loss.squared
    return 2 * value / (first + math.sqrt(first * first + 4 * second * value))


def _grid(design: QuantizerDesign, space: OutputSpace, cell: float) -> Array:
    """Outputs: even on the input range; beyond, where a squared loss wants them, even and then wider and wider."""
    low, high = design.input_range
    half = (high - low) / 2
    inner = np.linspace(low, high, 1 + math.ceil((high - low) / cell))
    atoms = design.prior.atoms[0]
    if len(atoms) <= _ATOMS:
        inner = np.union1d(inner, atoms[(atoms > low) & (atoms < high)])
        inner = inner[np.diff(inner, prepend=-math.inf) > 1e-9 * half]
    if design.loss.squared:
        farthest = max(low - space.points[0], space.points[-1] - high)
        used = half * (1 / math.tanh(design.privacy.epsilon / 4) - 1) + _MARGIN * cell
        even = max(cell, used / _COARSE)
        steps, place = [], 0.0
        while place < farthest:
            place += max(even, _GROWTH * (place - used))
            steps.append(place)
        beyond = np.array(steps)
        inner = np.concatenate([low - beyond[::-1], inner, high + beyond])
    found = space.with_ends(inner)
    return found.compress(np.concatenate([[True], np.diff(found[:-1]) > 1e-9 * half, [True]]))


def _lowered(question: OptimalQuantizer, duals: DualPieces) -> DualPieces:
    """The same lines, lowered by the κ that proves most; in floats, whatever κ is the bound is one."""
    assert duals.outputs is not None
    if not len(duals.pieces):  # nothing is proved
        return duals
    u, v, share, L0, L1, M0, M1 = duals.pieces.T
    bins, loss, rho = duals.outputs - duals.origin, question.loss, math.exp(question.solved_epsilon)
    prior = question.prior.standardised(duals.origin, 1.0)
    edges = np.unique(np.concatenate([u, v]))
    below = np.zeros((len(edges), 2))
    below[1:] = np.cumsum(prior.continuous_moments(edges)[:, :2], axis=0)
    mass, first = share * (below[np.searchsorted(edges, v)] - below[np.searchsorted(edges, u)]).T
    points, weights = prior.atoms
    if len(points) and (single := u == v).any():
        after = np.searchsorted(points, u[single])
        pairs = np.stack([after - 1, after]).clip(0, len(points) - 1)
        closer = np.abs(points[pairs] - u[single]).argmin(axis=0)
        nearest = np.take_along_axis(pairs, closer[None], axis=0)[0]
        mass[single] = share[single] * weights[nearest]
        first[single] = mass[single] * u[single]
    later = (first - u * mass) / np.where(v > u, v - u, 1.0)
    steps = np.diff(bins)
    reductions = loss.squared * np.maximum(np.append(0.0, steps), np.append(steps, 0.0)) ** 2 / 4
    turn = np.searchsorted(bins, (u + v) / 2)
    left = np.searchsorted(bins, u, side="right") - 1
    nearer = (u + v) / 2 - bins[np.maximum(left, 0)] < bins[np.minimum(turn, len(bins) - 1)] - (u + v) / 2
    sign = np.where(np.arange(len(bins)) >= np.where(nearer, left, turn + 1)[:, None], 1.0, -1.0)
    parts = []
    for y, level, tilt, weight in ((u, L0, M0, mass - later), (v, L1, M1, later)):
        costs = loss.absolute * sign * (bins - y[:, None]) - tilt[:, None] * bins - level[:, None]
        parts.append((weight, costs + loss.squared * bins**2 - reductions))
    ahead = np.maximum(bins[:, None] - bins, 0.0)
    up, down = duals.multipliers
    priced = (rho * ahead - ahead.T) @ up + (rho * ahead.T - ahead) @ down

    def lost(kappa: float) -> float:
        rest = -priced
        for weight, costs in parts:
            high = costs + kappa
            rest = rest + weight @ np.where(high > 0, high, rho * high)
        least = float(rest.min())
        return kappa * float(mass.sum()) - (least / rho if least > 0 else least)

    most = max(
        1e-300,
        2 * float(mass @ np.abs(parts[0][1]).min(axis=1))
        + float(reductions.max())
        + loss.absolute * float(steps.min()),
    )
    found = optimize.minimize_scalar(lost, bounds=(0.0, most), method="bounded", options={"maxiter": _LEVELS})
    kappa = float(found.x) if found.fun < lost(0.0) else 0.0
    table = duals.pieces.copy()
    table[:, 3:5] -= kappa
    return replace(duals, pieces=table)
