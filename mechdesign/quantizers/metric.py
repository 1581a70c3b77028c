r"""Quantizers under metric and approximate local privacy.

**On the continuum**, :math:`d = |x - x'|`, rows interpolated linearly between knots are private everywhere if neighbouring rows
satisfy linear constraints (`PairwisePrivacy`): a linear program.

**On a fixed input grid**, any metric, for all pairs of grid points; and (ε, δ)-privacy, with slacks
:math:`S_{kl,i} \ge P_{k,i} - e^\varepsilon P_{l,i}`, :math:`\sum_i S_{kl,i} \le \delta`. Inputs off the grid are first
rounded at random to a neighbouring grid point, with their mean preserved; the objective is the exact loss including that. On a
continuum :math:`|x - x'|^2` would force a constant mechanism (n steps of h/n cost :math:`n (h/n)^2 \to 0`), so it needs
a grid. Applied to each coordinate of a vector, it gives :math:`\varepsilon \|x - x'\|_2^2` (Chaudhuri et al. 2022,
Lemma 6).

**Solution** by one growing program: it begins with neighbouring inputs; pairs of inputs that its solution violates, and inputs between
those of a grid whose loss exceeds the worst case so far, are added until there are none. Every solution's multipliers prove a bound;
the law with the two outermost outputs, which decides feasibility, comes first.

**Bounds.** A mechanism that is private on a grid, or everywhere, is private on listed inputs: rows of their table with multipliers bound all such mechanisms. A
table over cells of a continuum bounds the mean over it (`MetricQuantizer.over_cells`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy import stats

from mechdesign.checks import field, increasing, instance, integer, interval, one_of, refuse, settle
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import rational, round_down
from mechdesign.evidence.proofs import (
    ABOUT_FILE,
    CLAIMED,
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    ClosedBound,
    MechanismClass,
    RowsBound,
    every,
)
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import UnavailableCallable, serializable
from mechdesign.evidence.vipr import LinearBound
from mechdesign.model.declared import Declared
from mechdesign.model.exactly import proved_bounds
from mechdesign.model.program import Program
from mechdesign.model.table import Private, Table
from mechdesign.model.table_problem import TableDesign, TableProblem, audit_of_rows
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import LawPrior, Prior
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP, points_of
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.moments import Moments, PointMasses, hats, interpolated_costs
from mechdesign.quantizers.pairwise import PairwisePrivacy
from mechdesign.quantizers.proofs import OUTERMOST, QuantizerDesign, certified_value
from mechdesign.quantizers.table import (
    ExactLaw,
    PiecewiseTable,
    RationalTable,
    check_bins,
    check_range,
    loss_peaks,
    mirrored_bins,
    outermost_law,
)
from mechdesign.typing import Array, Indices, Numbers, Weights

LEMMA = (
    " Between the inputs listed probabilities are interpolated. The objective is the expected loss under the prior, or under a law on finitely many inputs "
    "where the worst case counts, its masses and moments rounded so that the cost falls. So every private mechanism on these inputs with these outputs that "
    "is right on average gives a point of this program that costs no more than its own loss, and none has a smaller one than the bound derived below."
)

CELLS = (
    " The inputs are the means of cells of the prior, P(x, y) the mean of an output's probability over a cell. Two cells' means differ by at most "
    "e^(epsilon w) where their inputs, paired in order, are at most w apart. An error costs no less than at the mean of its cell, less what an average of "
    "probabilities can move the mean by. Masses and moments are doubles. So every private mechanism with these outputs that is right on average gives a "
    "point of this program that costs no more than its own loss, and none has a smaller one than the bound derived below."
)

_MOST = 40_000  # most inputs times outputs of a program
_MOST_PAIRED = 2_500  # the same for a program to which violated pairs are added
_LESS = (1 - 1e-12, 0.999, 0.9, 0.5)
"""Shares of an ε whose mechanism is tried where that of ε exceeds it by rounding, or doubles do not resolve it."""
_ROUNDS = 30
_MOST_INPUTS = 257  # most inputs, or ends of cells, of a program that gives a bound on a continuum


@serializable("listed-inputs", eq=False)
class ListedInputs:
    """Inputs of the table whose optimum bounds every metric quantizer; a `RowsBound` names rows of its program.

    Parameters
    ----------
    inputs : array, optional
        For the worst case on the continuum: the listed inputs. A mechanism on the continuum is one on these.
    places : array, optional
        For the worst case, which is at least the mean over any law on finitely many inputs: inputs of a law, and
    weights : tuple of Fraction, optional
        their probabilities.
    cells : int, optional
        For the mean over the continuum: the number of cells (`MetricQuantizer.over_cells`).
    """

    finite: ClassVar[bool] = True

    inputs: Array | None = None
    places: Array | None = None
    weights: tuple[Fraction, ...] = ()
    cells: int | None = None


@serializable("metric-quantizer")
class MetricQuantizer(QuantizerDesign, TableDesign):
    r"""The best of every unbiased quantizer with given outputs under metric, or approximate, local privacy.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values covering the input range.
    privacy : MetricDP, ApproximateDP or PureDP
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
    loss : "absolute", "squared", dict of the two, or convex callable
    objective : {"mean", "worst"}
        The worst case is over all inputs: on a grid, over the knots and those inputs between them, rounded to the grid at random,
        that turn out to lose more.
    inputs : array_like, shape (K + 1,), optional
        A fixed input grid, required except for ``MetricDP(ε, "absolute")``, which without it is solved on the continuum. Privacy by distance then
        holds between the grid's inputs; others are rounded to it at random first, and may lose more per unit of distance.
    input_range : (float, float), optional
        By default the grid's range, or else the support of a law; with samples as prior one of the two must be stated.

    Examples
    --------
    >>> from scipy import stats
    >>> design = MetricQuantizer(bins=[-3, -0.5, 0.5, 3], privacy=MetricDP(2.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve(gap=0.02)
    >>> result.mechanism.metric_loss() <= 2.0, result.gap < 0.02
    (True, True)
    """

    bins: Any
    privacy: MetricDP | ApproximateDP | PureDP = field(MetricDP, ApproximateDP, PureDP)
    prior: Any = field()
    loss: Any = "absolute"
    objective: str = field(check=one_of, allowed=("mean", "worst"), default="mean")
    inputs: Any = None
    input_range: Any = None

    rows_take = ListedInputs

    @property
    def default_gap(self) -> float:  # type: ignore[override]
        """Target gap: what some hundred knots prove on a continuum; a grid's program is exact."""
        return 1e-2 if self.continuum else 1e-6

    def _post_check(self) -> None:
        bins = mirrored_bins(check_bins("bins", self.bins))
        given = None if self.input_range is None else interval("input_range", self.input_range)
        if self.inputs is not None:
            grid = increasing("inputs", self.inputs)
            ends = float(grid[0]), float(grid[-1])
            remedy = f"must equal the grid's ends {ends} or be left out"
            refuse(given not in (None, ends), "input_range", given, remedy)
            given = ends
            settle(self, inputs=tuple(grid.tolist()))
        elif not (isinstance(self.privacy, MetricDP) and self.privacy.metric == "absolute"):
            why = "this notion is solved on a fixed input grid"
            if isinstance(self.privacy, MetricDP):
                why = "on a continuum the squared metric forces a constant mechanism"
            raise DesignError.of("inputs", None, f"must be a grid of inputs: {why}")
        prior, given = Prior.ranged(self.prior, given)
        reach = check_range(given, bins)
        settle(self, bins=tuple(bins.tolist()), input_range=reach, prior=prior)
        settle(self, loss=Loss.of(self.loss))
        self.loss.check_convex(bins, *reach)

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Return the trade-off between any two inputs, including the farthest."""
        asked = self.privacy
        return points_of(PureDP(result.mechanism.privacy_loss()) if isinstance(asked, MetricDP) else asked)

    @property
    def continuum(self) -> bool:
        """Whether privacy is required between all inputs of the range, not only those of a grid."""
        return self.inputs is None

    @property
    def pair(self) -> str:
        if self.continuum or not isinstance(self.privacy, MetricDP):
            return ""
        return "any two inputs of the grid (others are rounded to it at random first)"

    @property
    def notion(self) -> PairwisePrivacy:
        """Comparison of rows: the pairs, and their allowed differences."""
        return PairwisePrivacy(self.privacy, self.continuum)

    def knots(self, count: int = 129) -> Array:
        """Return the grid, or `count` equally spaced knots."""
        if self.inputs is not None:
            return np.array(self.inputs)
        lower, upper = self.input_range
        return np.linspace(lower, upper, integer("knots", count, 2, 2**16))

    # -- model ----------------------------------------------------------------------------------------

    def problem(self, *, knots: int = 129, places: Numbers = ()) -> TableProblem:
        """Declare the table of rows at the grid's inputs, or at `knots` of the continuum, with the loss of the interpolated mechanism.

        For named metrics, chains of neighbours imply all other pairs. The worst case is over the inputs of the rows and
        `places` between them. On the continuum a row is at most :math:`1 + \\varepsilon h` times its neighbour.
        """
        if self.objective == "mean":
            return self._averaged(self.knots(knots))
        x, bins = self.knots(knots), np.array(self.bins)
        P, at = Table(x, bins), np.concatenate([x, np.asarray(places, dtype=float)])
        largest = cp.max(cp.sum(cp.multiply(self.loss(bins - at[:, None]), hats(x, at) @ P), axis=1))
        return self._stated(P, largest, f"largest {self.loss.words} at {len(at)} inputs")

    def _averaged(self, knots: Array) -> TableProblem:
        """Declare the problem of the expected loss."""
        P = Table(knots, self.bins)
        costs, constant = interpolated_costs(np.array(self.bins), knots, self.loss, self.prior)
        words = f"expected {self.loss.words} of interpolated rows"
        return self._stated(P, cp.sum(cp.multiply(costs, P)) + constant, words)

    def _stated(self, P: Table, target: cp.Expression, words: str) -> TableProblem:
        target.set_label(words)
        return TableProblem(cp.Minimize(target), (self._private(P), P.unbiased()), design=self)

    def _private(self, P: Table) -> Private:
        privacy, near = self.privacy, "adjacent" if self.notion.neighbours else "all"
        if not isinstance(privacy, MetricDP):
            return P.private(privacy)
        if not self.continuum:
            distances = (1 + 1e-15) * P.distances(privacy)  # rounded up, so that no mechanism is excluded
            return replace(P.private(privacy, between=near), distances=distances)

        def slope(x: Array, y: Array) -> Array:
            return np.asarray(np.log1p(privacy.epsilon * abs(x - y)) / privacy.epsilon * (1 - 1e-15))

        return P.private(MetricDP(privacy.epsilon, slope), between=near)

    def problem_of(self, result: Result) -> TableProblem:
        """Return the problem at the result's knots; for the worst case also at the inputs between them that were added."""
        places = next((p.given.places for p in result.proofs if isinstance(p, RowsBound)), None)
        return self.problem(knots=len(result.mechanism.knots), places=() if places is None else places)

    # -- solve ----------------------------------------------------------------------------------------

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the bound 0, and the law that uses the two outermost outputs, which decides feasibility.

        Raises
        ------
        InfeasibleError
            No unbiased mechanism with these outputs is private enough.
        """
        if self.loss.polynomial:
            yield Bound(0.0, ClosedBound())
        if not outermost_private(self.notion, self.bins, self.knots(2)):
            raise self._infeasible()
        law = Quantizer.of_law(outermost_law(self.bins, self.knots(3)))
        yield self._law(law, SolveReport("closed form"), (OUTERMOST,))

    def modelled(
        self, clock: Clock, solver: str | None = None, knots: int | None = None, **options: Any
    ) -> Iterator[Law | Bound]:
        """Solve the declared problem, on the continuum at more and more knots, for a grid's worst case at more and more inputs between them.

        Parameters
        ----------
        clock : Clock
            Time limit and gap; on the continuum knots are doubled, from 65 up to 1,025, until the gap is reached.
        solver : str, optional
            A backend of `mechdesign.solvers`.
        knots : int, optional
            A fixed number of knots of the continuum instead.
        **options
            Options of the backend.

        Raises
        ------
        DesignError
            Too many inputs times outputs.
        InfeasibleError
            No unbiased mechanism with these outputs is private enough.
        """
        given = None if knots is None else integer("knots", knots, 2)
        counts = [given] if given or not self.continuum else [65, 129, 257, 513, 1025]
        lattices = [self.knots(129 if count is None else count) for count in counts]
        most = _MOST if self.notion.neighbours or isinstance(self.privacy, PureDP) else _MOST_PAIRED
        if (size := len(lattices[0]) * len(self.bins)) > most:
            raise DesignError(f"inputs: {size} inputs times outputs are too many, at most {most} are taken")
        less = (replace(self.privacy, epsilon=self.privacy.epsilon * share) for share in _LESS)
        smaller = [replace(self, privacy=privacy) for privacy in less if not self.continuum]
        exist = [one for one in smaller if outermost_private(one.notion, self.bins, self.knots(2))]
        for lattice in lattices:
            if len(lattice) * len(self.bins) > most:
                return
            for solved in (self, *exist):
                try:
                    for found in solved._solved(self, lattice, clock, solver, options):
                        if solved is not self and isinstance(found, Bound):
                            found = self._bound(instance("proof", found.proof, RowsBound))
                        yield found
                    break
                except (InfeasibleError, SolverError) as error:  # feasible, but not resolved by doubles
                    failure = error
            else:
                clock.failed(failure, f"the best mechanism found without {len(lattice)} rows is used")
                return

    def _solved(
        self, asked: MetricQuantizer, knots: Array, clock: Clock, solver: str | None, options: dict[str, Any]
    ) -> Iterator[Law | Bound]:
        """Solve with rows at these knots: yield laws of `asked`, this design or one of slightly larger ε, and bounds of this design."""
        if self.objective == "worst" and not self.continuum:
            yield from self._worst(asked, knots, clock, solver, options)
            return
        problem, laws = self.problem(knots=len(knots)), list[Law]()
        for found in problem.improve(clock, solver, **options):
            if isinstance(found, Law):
                laws.append(asked._law(found.mechanism, found.report, found.notes))
            elif not self.continuum:
                yield self._proved(problem, found, np.zeros(0), None)
        bounds: list[Law | Bound] = [*self._bounded(len(knots), clock)] if self.continuum else []
        yield from [*laws, *bounds] if clock.passed else [*bounds, *laws]

    def _worst(
        self, asked: MetricQuantizer, knots: Array, clock: Clock, solver: str | None, options: dict[str, Any]
    ) -> Iterator[Law | Bound]:
        """Yield laws and bounds of a grid's worst case, and add the inputs between knots at which the law loses more, until there are none.

        Without these inputs the worst case is higher by 1% or more in 14 of 26 designs, at most by 22% (``results/ablations``).
        """
        mean, places, enough = self._averaged(knots).declared, np.zeros(0), 1 + max(1e-9, clock.gap / 4)
        for _ in range(_ROUNDS):
            problem = self.problem(places=places)
            for found in problem.improve(clock, solver, **options):
                if isinstance(found, Law):
                    yield asked._law(found.mechanism, found.report, found.notes)
                else:
                    yield self._proved(problem, found, places, mean)
            assert isinstance(found, Law)
            new = self._beyond(found.mechanism, found.value * enough, places)
            if not len(new):
                return
            places = np.sort(np.append(places, new))

    def _beyond(self, table: PiecewiseTable, most: float, places: Array) -> Array:
        """Return further inputs at which the interpolated rows lose more than `most`: the worst of each cell between knots and outputs."""
        knots, bins = self.knots(), np.array(self.bins)
        centre = knots[0] / 2 + knots[-1] / 2
        x, lost = loss_peaks(
            PiecewiseTable(bins - centre, knots - centre, table.starts, table.ends), self.loss
        )
        return np.setdiff1d((x + centre)[lost > most], [*places, *knots])

    def deployed(self, weights: Weights) -> Quantizer:
        """Return the quantizer that interpolates these rows."""
        knots = self.knots(len(weights))
        return Quantizer.of_law(RationalTable.interpolated(self.bins, knots.tolist(), weights))

    def _law(self, mechanism: Quantizer, report: SolveReport, notes: tuple[str, ...]) -> Law:
        """Return the law; raise SolverError if it exceeds the budget, as the program's distances are rounded up."""
        value, proof = certified_value(self, mechanism)
        if mechanism.law is None or not all(one.holds for one in self.privacy_claims(mechanism.law)):
            raise SolverError("the law failed its own check", solver=report.solver, status="check")
        if self.pair:
            notes += (f"privacy holds between {self.pair}",)
        return Law(mechanism, value, (proof,), report=report, notes=notes)

    def _proved(
        self,
        problem: TableProblem,
        found: Bound,
        places: Array,
        mean: Declared | None,
        inputs: Array | None = None,
        cells: int | None = None,
    ) -> Bound:
        """Return the bound of a problem on listed inputs or cells as a bound of the design; the worst case's is that of a prior on finitely many inputs."""
        held, declared = instance("proof", found.proof, RowsBound), problem.declared
        bound, given = Fraction(found.value), ListedInputs(inputs, cells=cells)
        proof = RowsBound(held.rows, held.multipliers, given)
        if self.objective == "worst":
            proof = _least_favourable(held, declared, np.concatenate([declared.inputs, places]), inputs)
            return self._bound(proof, mean)
        return self._bound(proof, bound=bound)

    def _bound(self, proof: RowsBound, mean: Declared | None = None, bound: Fraction | None = None) -> Bound:
        """Return the bound that a proof's rows give; multipliers of a smaller budget pay too little for this one's floors, and are moved."""
        if bound is None:
            declared, multipliers = self._priced(proof.given, mean), np.array(proof.multipliers, dtype=object)
            found = next(proved_bounds(declared, proof.rows, multipliers))
            held = instance("proof", found.proof, RowsBound)
            proof, bound = RowsBound(held.rows, held.multipliers, proof.given), Fraction(found.value)
        lost = 0 if self.rows_how == PROVED else abs(bound) / 10**12
        return Bound(round_down(bound - lost), proof)

    def _bounded(self, count: int, clock: Clock) -> Iterator[Bound]:
        """Yield a bound for every mechanism on the continuum, interpolated or not: for the worst case by listed inputs, for the mean by cells."""
        count, inputs, cells = min(count, _MOST_INPUTS), None, None
        if self.objective == "worst":
            inputs = self.knots(count)
            problem = replace(self, inputs=tuple(inputs.tolist())).problem()
        elif self.loss.polynomial:
            cells = count - 1
            problem = self.over_cells(cells)
        else:
            return
        program = Program(problem.declared, clock, listed=True, interior=True)
        try:
            program.solve()
        except (InfeasibleError, SolverError) as error:
            clock.failed(error, f"no lower bound is stated from {count} rows")
            return
        for found in proved_bounds(problem.declared, *program.multipliers()):
            yield self._proved(problem, found, np.zeros(0), None, inputs, cells)

    def over_cells(self, count: int) -> TableProblem:
        r"""Declare a table over cells of the continuum whose optimum bounds the mean loss of all mechanisms, interpolated or not.

        For any mechanism let :math:`P_{ki}` be the mean of :math:`p_i` over cell k under the prior, and :math:`d_{ki}` that of
        :math:`(x - \bar x_k)\, p_i`. Then

        - :math:`\sum_i P_{ki} = 1` and :math:`\sum_i B_i P_{ki} = \bar x_k`;
        - :math:`P_{k+1,i} \le e^{\varepsilon w_k} P_{ki}` and back, :math:`w_k` the ∞-Wasserstein distance of the two cells' conditional laws (couple
          their quantiles: paired inputs are at most w apart);
        - :math:`|d_{ki}| \le \tau_k h_k P_{ki}`, :math:`\tau = \tanh(\varepsilon h/4)`, as inside a cell of width h p varies by :math:`e^{\varepsilon h}` at most;
        - the absolute error is at least :math:`|(B_i - \bar x_k) P_{ki} - d_{ki}|` (Jensen), which d lowers by :math:`\varepsilon h^2/4` at most; the squared
          one is exactly :math:`\sum B_i^2 P_{ki}` minus the mean of :math:`x^2`.
        """
        (low, high), epsilon = self.input_range, self.privacy.epsilon
        centre = low / 2 + high / 2  # far from zero moments lose digits
        prior = self.prior.standardised(centre, 1.0) if centre else self.prior
        cells, bins = _cells(prior, low - centre, high - centre, count), np.array(self.bins) - centre
        mass, first, second = np.array([moments for *_, moments in cells]).T
        width = np.array([stop - start for start, stop, _ in cells])
        means, last = first / mass, np.arange(len(cells) - 1)
        apart = np.zeros((len(cells),) * 2)
        apart[last, last + 1] = [_distance(prior, *pair) * (1 + 1e-14) for pair in pairwise(cells)]
        moved = (np.tanh(epsilon * width / 4) * width)[:, None]
        off = np.maximum(np.abs(bins - means[:, None]) - moved, 0.0)
        costs = mass[:, None] * (self.loss.absolute * off + self.loss.squared * bins**2)
        P = Table(means, bins)
        private = replace(P.private(MetricDP(epsilon), between="adjacent"), distances=apart + apart.T)
        least = cp.sum(cp.multiply(costs, P)) - self.loss.squared * float(second.sum())
        return TableProblem(cp.Minimize(least), (private, P.unbiased()))

    def linear_bound(
        self, rows: Indices, multipliers: Iterable[Any], given: ListedInputs | None = None
    ) -> LinearBound:
        """Return the rows of the problem of the mean on these inputs, for `RowsBound`."""
        given = given or ListedInputs()
        program = self._priced(given).linear_bound(rows, multipliers)
        program.lemma += LEMMA if given.cells is None else CELLS
        return program

    def _priced(self, given: ListedInputs, declared: Declared | None = None) -> Declared:
        """Return the problem of the mean on these inputs (`declared`, if known) or over cells; costs are rounded down."""
        masses = None
        listed = () if given.inputs is None else tuple(given.inputs.tolist())
        mean = self.continuum and self.objective == "mean"
        if (given.cells is not None) != mean or bool(listed) != (self.continuum and not mean):
            allowed = "inputs, cells: must be given on the continuum, of the worst case and of the mean"
            raise DesignError(allowed)
        if given.cells is not None:
            return self.over_cells(integer("cells", given.cells, 1, _MOST_INPUTS - 1)).declared
        if self.objective == "worst":
            (low, high), at = self.input_range, np.array([]) if given.places is None else given.places
            inside = all(x in listed if listed else low <= x <= high for x in at.tolist())
            weighed = min(given.weights, default=0) >= 0 and sum(given.weights) <= 1
            if not (inside and weighed and len(at) == len(given.weights)):
                raise DesignError("places: must be inputs of the design, with weights that sum to 1 at most")
            masses = PointMasses(at, given.weights)
        design = replace(self, inputs=listed) if listed else self
        declared = declared or design._averaged(design.knots()).declared
        if masses is not None:
            costs = design.loss, design.prior, masses
            matrix, constant = interpolated_costs(np.array(design.bins), design.knots(), *costs)
            declared = replace(declared, cost=matrix.ravel(), constant=constant)
        return declared

    @property
    def rows_how(self) -> str:
        """How the rows of the problem are computed: enclosed, by quadrature and the user's functions, or read from a file without these."""
        functions = self.loss.function, getattr(self.privacy, "metric", None)
        if any(isinstance(f, UnavailableCallable) for f in functions):
            return CLAIMED
        enclosed = Moments(self.prior).proved and not self.continuum
        exact = self.loss.polynomial and (self.objective == "worst" or enclosed)
        return PROVED if exact and not callable(functions[1]) else RECOMPUTED

    def _infeasible(self) -> InfeasibleError:
        smallest = self.notion.smallest_epsilon(self.knots(), self.bins[0], self.bins[-1])
        known = f" (the smallest feasible epsilon is {smallest:.9g})" if math.isfinite(smallest) else ""
        remedy = "widen the outputs or raise epsilon"
        (low, high), bins = self.input_range, self.bins
        if not known and (low <= bins[0] or high >= bins[-1]):  # some output is certain at one input
            remedy = "no epsilon suffices where inputs reach the outermost outputs: widen the outputs"
        return InfeasibleError(
            f"no unbiased mechanism with outputs in [{self.bins[0]:g}, {self.bins[-1]:g}] has "
            f"{type(self.privacy).__name__} at epsilon = {self.privacy.epsilon:g}{known}; {remedy}",
            smallest_epsilon=smallest,
        )

    # -- what a result says ---------------------------------------------------------------------------

    @property
    def mechanism_class(self) -> MechanismClass:
        return every(self.with_outputs("these outputs"))

    def least_cost(self, stated: Certificate, given: None) -> Fraction:
        """Return 0: absolute and squared errors are non-negative."""
        DesignError.when(not self.loss.polynomial, "lower_bound: 0 does not bound a loss given as a function")
        return Fraction(0)

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate every row of the declared problem at the law's knots: privacy of the compared pairs, means, sums."""
        mechanism, declared = result.mechanism, self.problem_of(result).declared
        rows = mechanism.knot_rows.tolist()
        exact = rows if mechanism.law is None else mechanism.law.knot_rows()
        cells = [rational(p) for row in exact for p in row]
        further = [rational(result.value)] * (len(declared.cost) - declared.cells)
        proofs = [p for p in result.proofs if isinstance(p, RowsBound)]
        held = next((p for p in proofs if p.given.inputs is None and p.given.cells is None), None)
        multipliers = {} if held is None else _numbered(held, declared)
        return audit_of_rows(declared, [*cells, *further], multipliers)

    def epsilon_of(self, mechanism: Quantizer) -> float:
        """Return the smallest ε at which the float tables of a mechanism satisfy the notion, rounded up (at the design's δ)."""
        instance("mechanism", mechanism, Quantizer)
        if self.continuum:
            return float(mechanism.metric_loss())
        if self.notion.delta:
            return float(self.privacy.epsilon)  # checked with slack when the law was made
        return self.notion.needed(mechanism.knots, mechanism.knot_rows)

    def privacy_claims(self, law: ExactLaw) -> Iterator[Claim]:
        r"""Check in fractions that the rows at the knots are private (`notion`).

        On the continuum neighbours must be within ratios :math:`1 + \varepsilon h`; on a grid every pair is compared, or only
        neighbours if chains of them imply the others.
        """
        instance("law", law, RationalTable)
        if self.inputs is not None and law.knots != tuple(map(Fraction, self.inputs)):
            raise DesignError("law: must have the inputs that the question asks for")
        claim = f"privacy: {self.privacy!r}"
        if isinstance(getattr(self.privacy, "metric", None), UnavailableCallable):
            yield Claim(claim, CLAIMED, math.nan, True)
            return
        rows = law.knot_rows()
        joined = all(law.row(k, 0) == row for k, row in enumerate(rows[1:-1], 1))
        slack = self.notion.exact_slack(list(law.knots), rows)
        yield Claim("rows are interpolated", PROVED, math.nan, joined, ABOUT_FILE)
        yield Claim(claim, PROVED, round_down(slack), slack >= 0)

    def lines(self, result: Result) -> list[str]:
        mechanism = result.mechanism
        where = "on the continuum" if self.continuum else f"on {len(mechanism.knots)} inputs"
        found, budget = self.epsilon_of(mechanism), self.privacy.epsilon
        return [f"privacy {where}: {found!r} <= budget {budget!r}, knots: {len(mechanism.knots)}"]


def _numbered(proof: RowsBound, declared: Declared) -> dict[int, Fraction]:
    """Return the multipliers by row number of the solved problem, including the rows of the worst case."""
    more, given = len(declared.family) - declared.n, proof.given
    found = {r + more * (r >= declared.n): m for r, m in zip(proof.rows.tolist(), proof.multipliers)}
    if given.places is None:
        return found
    number = {x: k for k, x in reversed([*enumerate([*declared.inputs, *given.places.tolist()])])}
    return {**found, **{declared.n + number[x]: w for x, w in zip(given.places.tolist(), given.weights)}}


def _least_favourable(held: RowsBound, declared: Declared, at: Array, inputs: Array | None) -> RowsBound:
    """Turn the multipliers of the worst case's rows into a law on their inputs, and renumber the others for the problem without these rows."""
    n, more = declared.n, len(declared.family) - declared.n
    prices = dict(zip(held.rows.tolist(), held.multipliers))
    weights = {number: price for number, price in prices.items() if n <= number < n + more}
    total = max(sum(weights.values(), Fraction(0)), Fraction(1))
    rows = [number - more * (number >= n) for number in prices if number not in weights]
    law = at[[number - n for number in weights]], tuple(price / total for price in weights.values())
    return RowsBound(
        np.array(rows, dtype=np.int64),
        tuple(price for number, price in prices.items() if number not in weights),
        ListedInputs(inputs, *law),
    )


def _cells(prior: Prior, lower: float, upper: float, count: int) -> list[tuple[float, float, Array]]:
    """Return cells (start, stop, moments): each atom by itself if there are few, and the density between cut points."""
    points, weights = prior.atoms
    edges, few = np.linspace(lower, upper, count + 1), len(points) <= 4 * count
    if few:
        edges = np.unique(np.concatenate([edges, points]))
    moments = prior.continuous_moments(edges) if few else prior.moments(edges)
    out = [(float(a), float(b), row) for a, b, row in zip(edges[:-1], edges[1:], moments)]
    if few:
        out += [(float(x), float(x), w * np.array([1.0, x, x * x])) for x, w in zip(points, weights)]
    # Half-open cells: an atom at a cell's start comes before the cell.
    return sorted((c for c in out if c[2][0] > 1e-12), key=lambda c: (c[0] + c[1], c[1]))


def _quantile_grid(prior: Prior, start: float, stop: float) -> tuple[Array, Array]:
    """Return points and the conditional distribution function of the density on a cell, or of the atom."""
    if start == stop:
        return np.array([start, stop]), np.array([0.0, 1.0])
    x = np.linspace(start, stop, 513)
    mass = np.concatenate([[0.0], np.cumsum(prior.continuous_moments(x)[:, 0])])
    with np.errstate(invalid="ignore"):  # an empty cell between atoms: the caller takes the hull
        return x, mass / mass[-1]


def _distance(prior: Prior, first: tuple[float, float, Array], second: tuple[float, float, Array]) -> float:
    """Return an upper bound of the ∞-Wasserstein distance of two neighbouring cells' conditional laws."""
    hull = second[1] - first[0]
    if isinstance(prior, LawPrior) and type(prior.law.dist) is type(stats.uniform):
        start, stop = prior.support
        if first[0] >= start and second[1] <= stop and first[0] < first[1] and second[0] < second[1]:
            # Both conditional laws are uniform: quantiles differ most at an end.
            return max(second[0] - first[0], second[1] - first[1]) * (1 + 1e-14)
    (x, u), (y, v) = (_quantile_grid(prior, *cell[:2]) for cell in (first, second))
    if not (np.all(np.isfinite(u)) and np.all(np.isfinite(v))):
        return hull
    levels = np.unique(np.concatenate([u, v]))
    # On [l, l'] the first law's quantile is at least its value at l, the second's at most its value at l'.
    low = x[np.clip(np.searchsorted(u, levels[:-1] + 1e-12, side="right") - 1, 0, len(x) - 1)]
    high = y[np.clip(np.searchsorted(v, levels[1:] - 1e-12, side="left"), 0, len(y) - 1)]
    return float(min(hull, (high - low).max() + 1e-12))


def outermost_private(notion: PairwisePrivacy, bins: Sequence[float], knots: Array) -> bool:
    """Whether the law of the two outermost outputs is private, in exact arithmetic: if not, no unbiased mechanism with these outputs is."""
    if notion.continuum or not isinstance(notion.privacy, MetricDP):
        knots = knots[[0, -1]]  # affine rows differ most at the ends
    law = outermost_law((bins[0], bins[-1]), knots)
    rows = law.knot_rows()
    if notion.continuum:  # steepest, relative to itself, where it is smallest: a segment's length cancels
        slope = abs(rows[1][0] - rows[0][0]) / (law.knots[1] - law.knots[0])
        return slope <= Fraction(notion.privacy.epsilon) * min(map(min, rows))
    return notion.exact_slack(list(law.knots), rows) >= 0
