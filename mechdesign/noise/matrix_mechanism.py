"""The matrix mechanism: which design finds the least Gaussian noise for linear queries on counts."""

from __future__ import annotations

from mechdesign.accounting.gaussian import GaussianPrivacy
from mechdesign.errors import DesignError
from mechdesign.noise.buffered_noise import BUFFERS
from mechdesign.noise.buffered_toeplitz import BufferedToeplitz
from mechdesign.noise.changes import Changes, Participation, Patterns
from mechdesign.noise.correlated import CorrelatedGaussian
from mechdesign.problem.checks import instance, integer
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.problem.workload import Workload
from mechdesign.typing import Numbers

DENSE = 4096
"""Counts of prefix sums up to which a covariance is held in full."""


def MatrixMechanism(
    workload: Workload | Numbers,
    privacy: GaussianPrivacy,
    l0: int = 1,
    most: float = 1.0,
    *,
    signed: bool = True,
    loss: str = "total",
    participation: Participation | None = None,
    buffers: int | None = None,
    neighbours: str = NEIGHBOURS[0],
) -> CorrelatedGaussian | BufferedToeplitz:
    r"""Return the design of the least Gaussian noise for the answers to linear queries on counts.

    Up to 4,096 counts of any covariance. Prefix sums of more, or with ``buffers=``, by a Toeplitz strategy of a few buffers.

    Parameters
    ----------
    workload : Workload or array_like, shape (m, n)
        A: ``Workload.prefix_sums(n)``, ``ranges``, ``marginals``, ``kron`` of these, or a matrix. Up to 4,096 counts; of prefix sums up to 1,000,000.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    l0 : int
        c: how many counts one person changes, at most. For c > 1 the changes are listed: up to 10⁷ numbers of them.
    most : float
        a: the most that one count changes.
    signed : bool
        Whether some counts may rise for one person while others fall (as when a person is replaced; state c for the
        difference then). False: one person more or less, counts only rise or only fall.
    loss : {"total", "largest"}
        The sum of the variances of the answers, or the largest of them.
    participation : Participation, optional
        Of a stream in which one person takes part several times: how often and how far apart. Instead of `l0`; `most` and
        `signed` are of every step. Patterns at least b apart that are too many to list get the better of a banded and (for prefix sums) a Toeplitz
        strategy: k times of up to √(10⁷/2k) steps.
    buffers : int, optional
        Of prefix sums: 1 to 8, for a `BufferedToeplitz` strategy; 8 where there are more than 4,096 counts.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold.

    Examples
    --------
    >>> import mechdesign as md
    >>> totals = md.MatrixMechanism(md.Workload.prefix_sums(20), md.ApproximateDP(1.0, 1e-6)).solve()
    >>> round(totals.value * totals.design.budget, 2), totals.gap < 1e-6, totals.certificate.verify()
    (61.53, True, True)
    >>> answers = totals.mechanism.release(range(20))          # twenty running totals
    >>> steps = totals.mechanism.stream(range(20))             # or one by one, as the counts come
    >>> answers.shape, type(next(steps)).__name__
    ((20,), 'float')
    """
    asked = workload if isinstance(workload, Workload) else Workload(workload)
    if participation is not None and l0 != 1:
        raise DesignError.of("l0", l0, "is for counts: participation says how many steps one person moves")
    prefix = asked.kinds == ("prefix",)
    if buffers is not None or (prefix and asked.size > DENSE):
        if not prefix:
            raise DesignError.of("buffers", buffers, "are for prefix sums")
        return BufferedToeplitz(
            asked.size,
            privacy,
            participation=participation or Participation(integer("l0", l0, 1, asked.size), apart=1),
            most=most,
            loss=loss,
            buffers=BUFFERS if buffers is None else buffers,
            neighbours=neighbours,
        )
    changes: Changes | Patterns
    if participation is None:
        changes = Changes(asked.size, l0, most, signed)
    else:
        changes = Patterns(asked.size, instance("participation", participation, Participation), most, signed)
    return CorrelatedGaussian(changes, privacy, workload=asked, loss=loss, neighbours=neighbours)
