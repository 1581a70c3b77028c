r"""RQM, the randomized quantization mechanism of Youn et al. (2023): every bin is kept with probability q.

The bins are m uniform points on [lower − Δ, upper + Δ]. All but the two outermost are kept independently with probability
q, and the input is rounded without bias to the nearest kept bin on either side. As a member of the selection family
(`mechdesign.quantizers.mechanism.selection`), with bins counted from the outermost one of each side,

.. math:: q_j(1) = (1 - q)^{j-1}, \qquad q_j(i) = q\,(1 - q)^{j-i}, \quad 1 < i \le j .

Its privacy loss grows with m: it is at most :math:`\log(2 (1-q)^2 (c + Δ)/Δ) + m \log \frac{1}{1-q}` on [−c, c].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.mechanism.selection import rqm_family
from mechdesign.quantizers.parameter_search import ParameterSearch, settle_family
from mechdesign.runs.grid import Grid
from mechdesign.typing import Array


@serializable("rqm")
@dataclass(frozen=True)
class RQM(ParameterSearch):
    """Randomized quantization mechanism with q and Δ searched.

    Parameters
    ----------
    m : int
        Number of output values.
    privacy, prior, loss, input_range
        As in `OPTM`.
    grid : Grid, optional
        Axes ``delta`` (in units of half the input range) and ``q`` (keep probability).

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.privacy import PureDP
    >>> result = RQM(4, PureDP(1.5), stats.uniform(-1, 2)).solve()
    >>> result.mechanism.privacy_loss() <= 1.5
    True
    """

    _selector = "q"

    def __post_init__(self) -> None:
        delta = np.append(np.linspace(0.2, 4.0, 20), [5.0, 6.0, 8.0])
        settle_family(self, Grid(delta=delta, q=np.linspace(0.02, 0.9, 12)))

    def _outputs(self, given: dict[str, float]) -> Array | None:
        delta = given["delta"]
        return None if delta < 0 else self._bins((1 + delta) * np.linspace(-1, 1, self.m)[1:-1], delta)

    def _families(self, bins: Array) -> Callable[[float], tuple[Array, Array] | None]:
        return lambda q: (rqm_family(len(bins), q),) * 2 if 0 < q < 1 else None
