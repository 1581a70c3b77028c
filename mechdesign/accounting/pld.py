"""Noise laws as dp-accounting's privacy-loss distributions, which compose with every mechanism that library knows."""

from __future__ import annotations

import math

from mechdesign.accounting.composition import plan_grid
from mechdesign.accounting.grids import MOST, discretise
from mechdesign.accounting.losses import NoiseTerm, loss_of
from mechdesign.checks import one_of, positive, refuse
from mechdesign.errors import MissingExtra
from mechdesign.typing import FrozenLaw

with MissingExtra.needed("pld", "a privacy-loss distribution", "dp-accounting"):
    from dp_accounting.pld import common, pld_pmf, privacy_loss_distribution


def to_pld(
    law: FrozenLaw,
    sensitivity: float,
    *,
    dimension: int = 1,
    step: float | None = None,
    pessimistic: bool = True,
) -> privacy_loss_distribution.PrivacyLossDistribution:
    r"""Return dp-accounting's `PrivacyLossDistribution` of `dimension` coordinates.

    Parameters
    ----------
    law : frozen scipy.stats distribution
    sensitivity : float
        Δ per coordinate.
    dimension : int
        K; composed by the library (``self_compose``).
    step : float, optional
        Discretisation interval; by default 1/2000 of the typical loss, on a round binary value so that
        distributions of different laws can share it.
    pessimistic : bool
        Round losses up (connect the dots), or down for a lower bound.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution

    Notes
    -----
    The library's FFT is absolute: expect an error near 1e-14 in δ, and use `delta_interval` for small δ.

    Examples
    --------
    >>> from scipy import stats
    >>> pld = to_pld(stats.laplace(scale=20.0), 1.0, dimension=20, step=1e-4)
    >>> float(round(pld.get_delta_for_epsilon(0.8) * 1e6, 3))
    3.029
    """
    term = NoiseTerm(law, sensitivity, dimension)
    loss = loss_of(term.law, term.sensitivity)
    if step is None:
        plan = plan_grid((term,), 1.0, 0.01)
        step = 2.0 ** math.floor(math.log2(max(plan.step / 4, 1e-9)))
    step, pessimistic = positive("step", step), one_of("pessimistic", pessimistic, (True, False))
    grid = discretise(loss, step, pessimistic=pessimistic, upper_tail=1e-30, lower_tail=1e-20)
    # The offset of a lower bound is less than a step.
    start = grid.start if pessimistic else grid.start - 1
    pmf = pld_pmf.DensePLDPmf(step, start, grid.mass.copy(), float(grid.infinity), pessimistic)
    pld = privacy_loss_distribution.PrivacyLossDistribution(pmf)
    if dimension == 1:
        return pld
    cut = 1e-15 if pessimistic else 0.0
    low, high = common.compute_self_convolve_bounds(grid.mass, dimension, cut)
    allowed = f"needs {high - low + 1:.3g} points of this step in dp-accounting: use a larger step, or delta_interval"
    refuse(high - low > MOST, "dimension", dimension, allowed)
    return pld.self_compose(dimension, tail_mass_truncation=cut)


def terms_to_pld(terms: tuple[NoiseTerm, ...]) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Return dp-accounting's distribution of several terms composed, on one step."""
    # an atom between two points of the grid moves up by a step at most, in each coordinate: finer steps with atoms
    finer = [64 if loss_of(t.law, t.sensitivity).atoms else 4 for t in terms]
    fine = [max(plan_grid((t,), 1.0, 0.01).step / by, 1e-9) for t, by in zip(terms, finer)]
    steps = [2.0 ** math.floor(math.log2(step)) for step in fine]
    parts = [to_pld(t.law, t.sensitivity, dimension=t.count, step=min(steps)) for t in terms]
    found = parts[0]
    for part in parts[1:]:
        found = found.compose(part)
    return found
