"""What a solver said when it failed stands in the result; a defect of a solver is no infeasibility."""

import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.solvers import Capabilities, Solution, Solver, register
from mechdesign.typing import Status


class Wrong(Solver):
    name, capabilities = "wrong", Capabilities(frozenset({"LP", "QP", "SOCP", "EXP"}))

    def available(self):
        return True

    def solve(self, model, *, time_limit=None, **options):
        primal = {name: np.zeros(v.shape) for name, v in model.variables.items()}
        return Solution(Status.INFEASIBLE, 0.0, primal, {}, "wrong", 0.0, native_status="infeasible")


register(Wrong(), replace=True)
uniform, bins = stats.uniform(-1, 2), [-3.0, -0.5, 0.5, 3.0]
for design in (
    md.MetricQuantizer(bins, md.MetricDP(2.0), uniform),
    md.OPTM(bins, md.PureDP(1.0), uniform),
    md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(1.0)),
):
    try:
        result = design.solve("wrong")
        print(f"{type(design).__name__}: {result.value:.6g}; {'; '.join(result.solver_report.lines())}")
    except md.MechdesignError as error:
        print(f"{type(design).__name__}: {type(error).__name__}: {error}")

crashed = md.SolverError("the library crashed", solver="highs", status="crashed")
md.solvers.solve = lambda *words, **options: (_ for _ in ()).throw(crashed)
print(*md.MetricQuantizer(bins, md.MetricDP(2.0), uniform).solve().notes, sep="\n")
