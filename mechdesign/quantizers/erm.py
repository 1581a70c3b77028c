r"""ERM, the exponential randomized mechanism of the OPTM paper: bins near the input are likelier, exponentially.

As a member of the selection family (`mechdesign.quantizers.mechanism.selection`)

.. math:: q_j(i) \propto \exp\left( γ \frac{B_i - B_j}{2 (B_j - B_1)} \right), \qquad q_1(1) = 1 ,

the exponential mechanism's choice of a bin left of the input, and its mirror image for the right. The larger γ, the
nearer the chosen bins: less error, more privacy loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.mechanism.selection import erm_families, symmetric_bins
from mechdesign.quantizers.parameter_search import ParameterSearch, settle_family
from mechdesign.runs.grid import Grid
from mechdesign.typing import Array


@serializable("erm")
@dataclass(frozen=True)
class ERM(ParameterSearch):
    """Exponential randomized mechanism with γ and the bins searched.

    The outermost bins are at lower − Δ and upper + Δ, the m − 2 others uniform on ± ``inner`` around the
    centre (m = 4: the pair of the OPTM paper).

    Parameters
    ----------
    m : int
        Number of output values, at least 3.
    privacy, prior, loss, input_range
        As in `OPTM`.
    grid : Grid, optional
        Axes ``delta``, ``inner`` (both in units of half the input range) and ``gamma``.
    """

    _selector = "gamma"

    def __post_init__(self) -> None:
        # Inner bins may go out to the outer ones: at small ε the best members are nearly two-output mechanisms.
        # At large ones the outer bins are next to the range.
        inner, gamma = np.geomspace(0.1, 4, 12), np.geomspace(1e-3, 20, 6)
        delta = np.concatenate([[0.001, 0.005, 0.025], np.geomspace(0.5, 5, 16)])
        settle_family(self, Grid(delta=delta, inner=inner, gamma=gamma), least=3)

    def _outputs(self, given: dict[str, float]) -> Array | None:
        delta, inner = given["delta"], given["inner"]
        if inner <= 0 or inner >= 1 + delta:
            return None
        middle = np.linspace(-inner, inner, self.m - 2) if self.m > 3 else np.zeros(1)
        return self._bins(middle, delta)

    def _families(self, bins: Array) -> Callable[[float], tuple[Array, Array] | None]:
        left = erm_families(bins)
        right = left if symmetric_bins(bins) else erm_families(-bins[::-1])

        def of(gamma: float) -> tuple[Array, Array] | None:
            if gamma <= 0:
                return None
            first = left(gamma)
            return first, first if right is left else right(gamma)

        return of
