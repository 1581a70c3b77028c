"""What has no noise, or is none, is refused by name."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.accounting.losses import loss_of
from mechdesign.noise import BufferedToeplitz, CellProduct, IntegerNoise, KNorm, KNormNoise, Participation
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.correlated_noise import CorrelatedGaussianNoise, StrategyNoise
from mechdesign.noise.vector_noise import IndependentNoise

A, P, S, W = md.ApproximateDP(1.0, 1e-6), md.PureDP(1.0), md.Sensitivity, md.Workload
NAN, INF = math.nan, math.inf
FEW = S(each=[1.0, 2.0, 3.0], l0=2)
TWO = md.TradeOff([(0, 0.3), (1, 1e-3)])
Cases = list[tuple[Callable[[], object], str]]


def allocated(
    noise: str = "gaussian", sensitivities: object = (1.0, 2.0), privacy: object = A, **more: object
) -> md.NoiseAllocation:
    return md.NoiseAllocation(noise, sensitivities, privacy, **more)


def calibrated(
    noise: object = "laplace", privacy: object = A, sensitivity: object = 1.0, **more: object
) -> md.Result:
    return md.calibrate(noise, privacy=privacy, sensitivity=sensitivity, **more)


def summed(n: int = 5, privacy: object = A, **more: object) -> md.MatrixMechanism:
    return md.MatrixMechanism(W.prefix_sums(n), privacy, **more)


def optimal(privacy: object = md.ApproximateDP(1.0, 0.1), *words: object, **more: object) -> md.OptimalNoise:
    return md.OptimalNoise(privacy, *words, **more)


class Broken(stats.rv_continuous):
    """A law whose density fails."""

    def _pdf(self, x):
        raise RuntimeError("no density")


def together(terms: object, privacy: object = md.ApproximateDP(1.0, 1e-5), *noise: str) -> md.Result:
    return md.calibrate(*noise, terms=terms, privacy=privacy)


def large(noise: str, privacy: object, loss: float, **more: object) -> md.Result:
    """An allocation to numbers of which the first is 60.99 in a unit."""
    return allocated(noise, [60.99, 1.0], privacy, loss=loss, **more).solve()


def covered(*rows: Callable[[object], object]) -> md.Result:
    """The least total of four variances, under rows of one's own."""
    S = md.Covariance(np.random.default_rng(1).standard_normal((6, 4)))
    return md.Problem(md.Minimize(S.total()), [S.private(A), *(row(S) for row in rows)]).solve()


def scaled(
    *rows: Callable[[object], object], objective: Callable[[object], object] | None = None
) -> md.Result:
    """The least scales of three numbers, under rows of one's own."""
    s = md.Scales([1.0, 2.0, 0.5], "laplace")
    loss = objective(s) if objective else s.expected(0.5)
    return md.Problem(md.Minimize(loss), [s.private(P), *(row(s) for row in rows)]).solve()


NORMAL = md.AdditiveNoise(stats.norm(), 1.0)
HULL = KNormNoise(2, 1.0, INF, vertices=[[1, 0], [0, 1], [1, 1]], largest=1.0)
PLANES = replace(HULL, vertices=None, simplices=None, planes=((2**24, 0), (0, 2**24), (2**24, 2**24)))


def thin() -> list[list[float]]:
    """Changes of eleven numbers, the last of them next to the first."""
    rng = np.random.default_rng(1)
    changes = rng.normal(size=(60, 10))
    return np.hstack([changes, changes[:, :1] + 1e-9 * rng.normal(size=(60, 1))]).tolist()


# fmt: off
ALLOCATIONS: Cases = [
    (lambda: allocated(sensitivities=[]), "at least one coordinate"),
    (lambda: allocated(sensitivities=[0, 0]), "needs no noise at all"),
    (lambda: allocated(sensitivities=[1, -1]), "coordinate 1 is -1"),
    (lambda: allocated(sensitivities=[[1, 2]]), "vector"),
    (lambda: allocated(sensitivities=[1e-300, 1.0]), "another unit"),
    (lambda: allocated("laplace", [1e-300, 1e300], P), "sensitivities"),
    (lambda: allocated(privacy=P), "Laplace noise is private without"),
    (lambda: allocated("laplace", privacy=md.MetricDP(1.0)), "PureDP or an ApproximateDP"),
    (lambda: allocated("laplace", privacy=md.GaussianDP(1.0)), r"proved of Gaussian noise alone: calibrate.*TradeOff"),
    (lambda: allocated(weights=[1, 0]), "weights"),
    (lambda: allocated(lower=2.0, upper=1.0), "above the upper limit"),
    (lambda: allocated(upper=[1.0, 1e-320]), "upper = 1e-320: must be at least"),
    (lambda: allocated(groups=[[0]]), "coordinate 1 is in no group"),
    (lambda: allocated(groups=[[0, 1], [1]]), "coordinate 1 is in 2 groups"),
    (lambda: allocated(groups=[[0, 1, 2]]), "not a coordinate"),
    (lambda: allocated(sensitivities=FEW, groups=[[0, 1], [2]]), "groups"),
    (lambda: allocated(sensitivities=[1.0, 2.0], bounds=FEW), "bounds"),
    (lambda: allocated(sensitivities=[1.0, 1.0, 1.0], bounds=FEW), "sensitivities"),
    (lambda: allocated(sensitivities=S(each=[1, 2, 3], l1=4, l2=3)).solve("closed-form"), "closed form"),
    (lambda: allocated(sensitivities=S(linf=1.0, l0=3)), "of_sensitivity"),
    (lambda: md.NoiseAllocation.of_sensitivity("gaussian", S(each=[1, 2]), 3, A), "each"),
    (lambda: allocated("mixed", privacy=P), "delta > 0"),
    *(
        (lambda size=size, e=e: allocated("staircase", [size] * 2, md.PureDP(e)).solve(), "choose other units where doubles")
        for size, e in ((1e140, 1e-20), (1e-135, 600.0))
    ),
    (lambda: allocated("mixed").solve("clarabel"), "solver"),
    (lambda: allocated("mixed").problem(), "searched for"),
    (lambda: IndependentNoise("laplace", np.ones(2), np.array([1.0, -1.0])), "sensitivities"),
    (lambda: md.noise.majorizes([1, 2], [1, 1, 1]), "other"),
    (lambda: large("mixed", md.ApproximateDP(1.7e-6, 1e-12), 40, bounds=S(each=[60.99, 1.0])), r"loss = 40.*overflow"),
    (lambda: large("laplace", md.PureDP(1e155), 2), r"loss = 2.*underflow"),
    (lambda: allocated("staircase", privacy=md.ZeroConcentratedDP(1.0)), "delta > 0"),
    (lambda: allocated("gennorm", loss=3), "loss"),
    (lambda: allocated("logistic", privacy=P, lower=0.5), "lower"),
    (lambda: allocated("gennorm", S(each=[1.0, 2.0], l0=1)), "noise"),
]
BEYOND = "finite, positive variance.*choose other units where doubles do not hold it"
CALIBRATIONS: Cases = [
    *((lambda bad=bad: calibrated(sensitivity=bad), "sensitivity") for bad in (-1.0, 0.0, NAN, INF, "one", None)),
    (lambda: calibrated("huber"), "flipped_huber"),
    (lambda: calibrated("flipped_huber", md.ApproximateDP(1.0, 1e-290), dimension=3), "1e-280"),
    *((lambda law=law: calibrated(law, P), "laplace") for law in ("gaussian", "flipped_huber", "osgt", "truncated_laplace")),
    (lambda: calibrated("discrete_laplace", sensitivity=1.5), "whole"),
    (lambda: calibrated("gennorm", md.ZeroConcentratedDP(0.1)), "zCDP"),
    (lambda: calibrated(stats.cauchy()), "finite"),
    (lambda: calibrated(stats.t(5)), "log-concave"),
    (lambda: calibrated(sampling_rate=1e-300), "sampling_rate"),
    (lambda: calibrated(privacy=md.ApproximateDP(1, 0.05), sampling_rate=0.01), "sampling_rate"),
    (lambda: calibrated(privacy=md.ZeroConcentratedDP(1), sampling_rate=0.5), "sampling_rate = 0.5"),
    (lambda: calibrated("gaussian", md.GaussianDP(1.0), sampling_rate=0.5), "privacy"),
    (lambda: calibrated("gaussian", md.TradeOff([(0, 0.1), (1, 0)])), "delta"),
    (lambda: calibrated(privacy=md.TradeOff([(0, 0)])), "points"),
    (lambda: md.AdditiveNoise(stats.laplace(scale=1e170), 1.0), BEYOND),
    (lambda: calibrated("logistic", md.PureDP(1e-20), sensitivity=1e140), BEYOND),
    (lambda: calibrated("gaussian", md.GaussianDP(1e-20), sensitivity=1e140), BEYOND),
    (lambda: md.AdditiveNoise(stats.cosine(), 1.0).release(0.0), "laplace"),
    (lambda: loss_of(Broken(name="broken")(scale=2.0), 1.0), r"law = .*raises RuntimeError: no density"),
    *(
        (lambda law=law: md.noise.flipped_huber_sufficient(law, 1.0), "law")
        for law in (stats.norm(), md.noise.flipped_huber(1.0, loc=1.0), "flipped_huber")
    ),
    *(
        (lambda terms=terms: together(terms), "terms")
        for terms in (
            [], [md.AdditiveNoise(md.noise.discrete_gaussian(2.0), 1.0)], [1.0], NORMAL,
            [NORMAL, md.AdditiveNoise(stats.norm(), S(l2=1, neighbours="replace"))],
        )
    ),
    (lambda: together([NORMAL], A, "gaussian"), "noise"),
    (lambda: together(None, A, "gaussian"), "sensitivity"),
    (lambda: together([NORMAL], md.ApproximateDP(1.0, 0.0)), "delta"),
    *((lambda wrong=wrong: together([NORMAL], wrong), "privacy") for wrong in (P, None)),
]
COVARIANCES: Cases = [
    (lambda: md.CorrelatedGaussian([], A), "changes"),
    (lambda: md.CorrelatedGaussian([[0.0, 0.0]], A), "needs no noise"),
    (lambda: md.CorrelatedGaussian([[1.0, 2.0]], A, weights=[1.0, -1.0]), "positive definite"),
    (lambda: md.CorrelatedGaussian([[1.0, 2.0]], A, weights=[[1.0, 0.5], [0.0, 1.0]]), "must be symmetric"),
    (lambda: md.CorrelatedGaussian([[1.0, 2.0]], P), "laplace"),
    (lambda: md.CorrelatedGaussian(np.eye(3)[:2], A), "span 2 of 3 dimensions.*span=True"),
    (lambda: md.CorrelatedGaussian(S(linf=1, l0=3), A), "of_sensitivity"),
    (lambda: md.CorrelatedGaussian.of_sensitivity(S(l2=1.0), 3, A), "corners"),
    (lambda: md.CorrelatedGaussian.of_sensitivity(S(each=[1.0] * 60), 60, A), "too many corners"),
    (lambda: CorrelatedGaussianNoise(np.ones((2, 2)), 1.0), "invertible"),
    *((lambda x=x: md.CountsGaussian(5, 2, A, most=x), "most = .*another unit") for x in (5e-324, 1e-160, 1e160)),
    (lambda: md.CountsGaussian(3, 1, md.ApproximateDP(1e308, 1e-6)), "epsilon"),
    (lambda: md.CorrelatedGaussian(np.eye(3), A, workload=W.identity(2)), "3 counts"),
    (lambda: md.CorrelatedGaussian(np.eye(3), A, workload=W.identity(3), weights=[1, 1, 1]), "themselves"),
    (lambda: md.CorrelatedGaussian(np.eye(3), A, weights=[1, 1, 1], loss="largest"), "total"),
    (lambda: md.CorrelatedGaussian(np.eye(3)[:2], A, workload=W.identity(3)), "span 2 of 3"),
    (lambda: md.MatrixMechanism(np.zeros((2, 3)), A), "rank 0"),
    (lambda: md.MatrixMechanism([[1e-200, 1.0]], A), "between"),
    (lambda: md.MatrixMechanism(np.eye(4100), A), "4096"),
    (lambda: md.MatrixMechanism(W.identity(100), A, l0=9), "too many to list"),
    (lambda: md.MatrixMechanism(W.ranges(1024), A, loss="largest"), "too many"),
    (lambda: summed(3, md.ApproximateDP(1e-300, 1e-300)).solve(), "larger delta"),
    (lambda: summed().solve("highs"), "solver|highs"),
    (lambda: W.marginals((2, 3)), "order"),
    (lambda: W.marginals((2, 3), kept=[(5,)]), "kept"),
    (lambda: W.stack(W.identity(2), W.identity(3)), "parts"),
    (lambda: StrategyNoise(W.identity(2), np.ones((2, 2)), 1.0), "independent rows"),
    (lambda: StrategyNoise(W.identity(2), np.eye(3), 1.0), "strategy"),
    (lambda: Participation(4, apart=2, every=2), "apart"),
    (lambda: summed(32, participation=Participation(4, every=8, fewer=False), signed=False), "span 8 of 32"),
    (lambda: summed(5, participation=Participation(3, apart=2, fewer=False)), "span 3 of 5.*say fewer=True"),
    (lambda: summed(1024, participation=Participation(4, apart=64, fewer=False)), "too many patterns.*fewer=True"),
    (lambda: summed(560, participation=Participation(16, apart=4)), "at most 559 steps"),
    (lambda: summed(20, buffers=2, l0=3, participation=Participation(1, apart=1)), "participation says"),
    (lambda: md.MatrixMechanism(W.ranges(20), A, buffers=2), "prefix sums"),
    (lambda: BufferedToeplitz(9, A, buffers=99), "buffers = 99"),
    (lambda: BufferedToeplitz(9, A, buffers=2, participation=Participation(3, apart=9)), "at most 1 times"),
    (lambda: BufferedToeplitz(9, md.ZeroConcentratedDP(1e-40), buffers=2).solve(), "so small"),
    (lambda: md.Covariance([[1.0, 1.0]]), "span 1 of 2"),
    (lambda: md.Covariance([[1e200, 0], [0, 1.0]]), "1e100"),
]
PROBLEMS: Cases = [
    (lambda: covered(lambda S: S[0, 0] <= 0.1), "no covariance meets 'private' and 'S.*' together .proved in rationals"),
    (lambda: covered(lambda S: md.named("a", S[0, 0] <= 60), lambda S: md.named("b", S[0, 0] >= 61)), "'a' and 'b'"),
    (lambda: covered(lambda S: cp.norm(S, "fro") <= 10), "together .recomputed by tangents.$"),
    (lambda: covered(lambda S: S[0, 0] <= cp.Variable(name="mine")), "variable of your own"),
    (lambda: covered(lambda S: cp.sqrt(S[0, 0]) <= 1), "not convex"),
    (lambda: scaled(lambda s: md.named("cap", s <= 1.0)), "no scales meet 'private' and 'cap' together .proved in rationals.*epsilon = 3.5"),
    (lambda: scaled(lambda s: md.named("low", s[0] >= 9), lambda s: md.named("high", s[0] <= 3)), "'low' and 'high' together .proved in rationals"),
    (lambda: scaled(lambda s: md.named("gap", s[0] - s[1] <= -1.0)), "'gap': mixes signs"),
    (lambda: scaled(lambda s: md.named("ball", cp.norm(s) <= 5)), "'private' and 'ball' together .recomputed by tangents.$"),
    (lambda: scaled(lambda s: md.named("none", 0 * cp.sum_squares(s) <= 1)), "'none': is 0 times a function"),
    # a row is named whatever its size is
    (lambda: scaled(lambda s: md.named("ball", 1e300 * cp.norm(s) <= 5e300)), "'private' and 'ball' together"),
    (lambda: scaled(lambda s: md.named("sum", 1e200 * cp.sum(s) <= 6e200)), "'private' and 'sum' together .proved"),
    (lambda: scaled(lambda s: md.named("flat", cp.norm_inf(s) <= 9)), "'flat': holds an atom of which CVXPY gives no slope"),
    (
        lambda: scaled(
            lambda s: md.named("wide", cp.inv_pos(s[0]) <= 0.2),
            lambda s: md.named("cap", s[0] <= 4),
            objective=lambda s: s.expected(2),
        ),
        "'wide' and 'cap' together .recomputed by tangents.$",
    ),
    (lambda: scaled(lambda s: s.private(P, [1.0])), "sensitivity = .*must be of 3 numbers"),
    (lambda: md.Scales([1.0], "laplace").private(md.GaussianDP(1.0)), "privacy = GaussianDP"),
    (lambda: scaled(objective=lambda s: s.expected(2) + s[0]), "objective: must be the loss of the scales"),
    (lambda: optimal(md.PureDP(1e-9), loss=np.abs).solve(), "lattice of"),
]
OPTIMAL: Cases = [
    (lambda: optimal(md.GaussianDP(1.0)), r"proved of Gaussian noise alone: calibrate.*TradeOff"),
    (lambda: optimal(md.TradeOff([(0, 1), (3, 1)])), "points"),
    *((lambda e=e: optimal(md.PureDP(e)), "epsilon = .*must be between 1e-18 and 200") for e in (5e-324, 1e-19)),
    (lambda: optimal(loss=lambda t: t.missing).solve(), "fails on an array"),
    (lambda: optimal(loss=lambda t: np.sqrt(np.abs(t))).solve(), "convex"),
    (lambda: optimal(loss=lambda t: np.zeros_like(t)).solve(), "grow"),
    (lambda: optimal(loss=lambda t: np.full_like(t, NAN)).solve(), "finite"),
    (lambda: optimal(P, loss=lambda t: np.cosh(3 * t)).solve(cells=2), "too fast"),
    *((lambda s=s: optimal(A, s, dimension=3), "sensitivity") for s in (S(l1=1), S(each=[1, 2, 2]), S(linf=1, l2=1.2))),
    (lambda: optimal(A, S(linf=2), dimension=3, l0=2), "l0"),
    *((lambda s=s: optimal(P, s, integer=True), "sensitivity") for s in (0.5, 501, -1, NAN)),
    (lambda: optimal(P, integer=True).solve(cells=4), "cells"),
    (lambda: IntegerNoise((1, 1), 5, 1, Fraction(1, 2)), "tails must begin"),
    (lambda: CellNoise((1, 1), 1.0, -1.0, 2, decay=Fraction(1, 2)), "tails need"),
    (lambda: CellNoise((1, 1), 1.0, 0.0, 1).release(0.0), "centred"),
    (lambda: CellNoise((1, 1), 1.0, -1.0, 1).expected_loss(lambda t: 1 / 0), "loss"),
    (lambda: CellNoise((1, 2, 2, 1), 1.0, 50.0, 2, decay=Fraction(1, 2)).expected_loss("absolute"), "hold 0"),
    (lambda: CellProduct(CellNoise((1, 2), 1.0, -1.0, 1), 2), "symmetric"),
]
RADIAL: Cases = [
    (lambda: KNorm(3, md.PureDP(1e-8), 1e150).solve(), "sensitivity"),
    (lambda: KNorm(2, P, [[1.0, 1.0], [1.0, 0.0]], norm=2), "norm = 2.0: is that of the hull"),
    (lambda: KNorm(33, P, np.eye(33)), "2 to 32 numbers change.*CorrelatedGaussian the list"),
    (lambda: KNorm(3, P, [[1, 1, 0], [1, 0, 1]]).solve(), "spans 2 of the 3 dimensions"),
    (lambda: KNorm(2, P, [[1, 1], [1, 0.9999999]]).solve(), "fills 5e-08 of the box"),
    (lambda: KNorm(13, P, np.eye(13)).solve(), "of the box"),
    *((lambda c=c: KNormNoise(3, 1.0, INF, 1.0, cap=c), "cap") for c in (3.5, 2.00001)),
    (lambda: KNormNoise(3, 1.0, 1, 1.0, signed=False), "signed"),
    (lambda: KNormNoise(3, 1.0, INF, 1.0, gamma=0.4), "20 bits"),
    (lambda: KNormNoise(3, 1.0, INF, gamma=0.5), "largest"),
    (lambda: KNormNoise(2, 1.0, INF, 1.0, widths=(1.0, 1e-300)).lattice, "widths"),
    (lambda: KNormNoise(3, 1e9, INF, 1e-9).release(np.zeros(3)), "raise epsilon"),
    (lambda: KNormNoise(300, 1.0, INF, 1.0, cap=110.0).release(np.zeros(300)), "norm=inf"),
    (lambda: KNormNoise(10_000, 1.0, INF, 800.0, gamma=2.0**-24), "gamma"),
    (lambda: KNorm(11, P, thin()).solve(), "too thin to draw from: add small changes across it"),
    *(
        (lambda faces=faces: replace(HULL, **faces), ".")
        for faces in (
            {"simplices": HULL.simplices[1:]}, {"simplices": ((1, 2), *HULL.simplices[1:])}, {"simplices": ((1, 9),)},
            {"vertices": ((2.0, 0.0), (0.0, 1.0), (1.0, 1.0))}, {"vertices": None}, {"norm": 1.0}, {"cap": 1.5}, {"signed": False},
        )
    ),
    *(
        (lambda other=other: replace(PLANES, **other), ".")
        for other in ({"norm": 1.0}, {"cap": 1.5}, {"signed": False}, {"planes": PLANES.planes[1:]}, {"planes": ((1, 2),)})
    ),
]
OF_CURVES: Cases = [
    (lambda privacy=privacy, make=make: make(privacy), "privacy")
    for privacy in (md.GaussianDP(1.0), md.MembershipAdvantage(0.1), TWO)
    for make in (
        lambda p: KNorm(3, p),
        lambda p: md.BoundedCount(4, p),
        lambda p: md.PrivateMean(0, 1, about=100).solve(p),
        lambda p: md.compare(md.LocalReport(bits=2), p),
    )
]
# fmt: on
LISTS = {
    "allocations": ALLOCATIONS,
    "calibrations": CALIBRATIONS,
    "covariances": COVARIANCES,
    "problems": PROBLEMS,
    "optimal": OPTIMAL,
    "radial": RADIAL,
    "curves": OF_CURVES,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the callables
@pytest.mark.parametrize(
    ("cases", "at"), [(name, i) for name, cases in LISTS.items() for i in range(len(cases))]
)
def test_it_is_refused_by_name(cases: str, at: int) -> None:
    call, word = LISTS[cases][at]
    with pytest.raises(md.MechdesignError if cases == "problems" else md.DesignError, match=word):
        call()
