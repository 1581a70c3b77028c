"""The matrix mechanism: the least Gaussian noise for linear queries on counts, of any covariance or of a Toeplitz strategy of a few buffers."""

from __future__ import annotations

from mechdesign.accounting.gaussian import GaussianPrivacy
from mechdesign.errors import DesignError
from mechdesign.noise.buffered_noise import BUFFERS
from mechdesign.noise.buffered_toeplitz import BufferedToeplitz
from mechdesign.noise.changes import Changes, Participation, Patterns
from mechdesign.noise.correlated import CorrelatedGaussian
from mechdesign.noise.correlated_noise import FULL
from mechdesign.problem.checks import instance, integer
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.problem.workload import Workload
from mechdesign.typing import Numbers


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

    Up to 4,096 counts any covariance is allowed. Prefix sums of more counts, or with ``buffers=``, get a Toeplitz strategy of a few buffers.

    Parameters
    ----------
    workload : Workload or array_like, shape (m, n)
        A: ``Workload.prefix_sums(n)``, ``ranges``, ``marginals``, ``kron`` of these, or a matrix. Up to 4,096 counts, or 1,000,000 for prefix sums.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    l0 : int
        c: the most counts that one person changes. For c > 1 the changes are listed: up to 10⁷ numbers.
    most : float
        a: the most that one count changes.
    signed : bool
        Whether some counts may rise for one person while others fall (as when a person is replaced; state c for the
        difference then). False: one person more or less, counts only rise or only fall.
    loss : {"total", "largest"}
        The sum of the variances of the answers, or the largest of them.
    participation : Participation, optional
        How often, and how far apart, one person takes part in a stream. Give it instead of `l0`; `most` and `signed` then hold at
        every step. Where patterns at least b apart are too many to list, the better of a banded and (for prefix sums) a Toeplitz strategy is
        returned, for up to √(10⁷/2k) steps.
    buffers : int, optional
        For prefix sums: 1 to 8 buffers of a `BufferedToeplitz` strategy; 8 if not given for more than 4,096 counts.
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
        raise DesignError.of(
            "l0", l0, "must be left out where participation says how many steps one person changes"
        )
    prefix = asked.kinds == ("prefix",)
    if buffers is not None or (prefix and asked.size > FULL):
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
