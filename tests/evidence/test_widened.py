"""Enclosures point outward: from widened data every claim has at most the margin that it has from data inside.

What a proof takes from outside of the rationals, exponentials and moments of priors, is enclosed so tightly that a side swapped
changes no claim. So each is widened by 10⁻³ here, and every claim about every kind of result is compared with what random
choices inside the widened enclosures make of it; in the package and in the stand-alone verifier.
"""

import importlib
import math
import pkgutil
import random
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import cheap
import numpy as np
import pytest
from flint import arb, fmpq
from scipy import optimize, stats

import mechdesign as md
from mechdesign.accounting import gaussian, profile
from mechdesign.accounting.losses import loss_of
from mechdesign.evidence import exact
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.evidence.vipr import NoProgramError
from mechdesign.model.scales import ScalesPrivacy
from mechdesign.noise import lagrangian, noise_bounds, radial
from mechdesign.quantizers import dual_pieces
from mechdesign.quantizers import moments as enclosures
from mechdesign.quantizers.proofs import DualBound
from mechdesign.verifier import allocation as verified_scales
from mechdesign.verifier import arithmetic, composition, quantizer_bound, reading
from mechdesign.verifier.verify import verify

WIDTH = Fraction(1, 1000)
CHOICES = 6
Margins = list[tuple[Any, bool]]

SAMPLES = [-0.9, -0.35, -0.3, 0.0, 0.1, 0.1, 0.6, 0.8]
RESULTS: dict[str, Callable[[], md.Result]] = {
    **{
        name: lambda name=name: cheap.solved(name)
        for name in (
            "optm",
            "metric-quantizer",
            "optimal-noise",
            "optimal-integer-noise",
            "optimal-noise-many",
            "vectors",
            "vectors-signs",
            "vectors-directions",
            "bounded-count",
            "metric-channel",
            "local-worst",
            "user-histogram",
            "user-linear",
        )
    },
    "quantizer": lambda: md.OptimalQuantizer(cheap.BINS, cheap.PURE, cheap.UNIFORM, "squared").solve(
        gap=1e-3
    ),
    "quantizer-samples": lambda: md.OptimalQuantizer(
        cheap.BINS, cheap.PURE, SAMPLES, {"absolute": 1, "squared": 0.5}, input_range=(-1, 1)
    ).solve(gap=1e-3),
    "quantizer-biased": lambda: md.OptimalQuantizer(
        [-2.0, -0.4, 0.7, 2.5], cheap.PURE, stats.uniform(-1, 2), max_bias=0.1
    ).solve(gap=1e-3),
    "quantizer-worst": lambda: md.OptimalQuantizer(
        cheap.BINS, cheap.PURE, cheap.UNIFORM, objective="worst"
    ).solve(gap=1e-3),
    "quantizer-clipped": lambda: md.OptimalQuantizer(
        cheap.BINS, cheap.PURE, md.clipped(stats.uniform(-2, 3), -1, 1)
    ).solve(gap=1e-2),
    "quantizer-any-outputs": lambda: any_outputs(),
    "metric-inputs": lambda: md.MetricQuantizer(
        cheap.BINS, md.MetricDP(2.0), cheap.UNIFORM, inputs=[-1.0, -0.3, 0.5, 1.0]
    ).solve(),
    "metric-delta": lambda: md.MetricQuantizer(
        cheap.BINS, md.ApproximateDP(1.0, 0.01), cheap.UNIFORM, inputs=[-1.0, 0.2, 1.0]
    ).solve(),
    "metric-worst": lambda: md.MetricQuantizer(
        cheap.BINS, md.PureDP(1.0), cheap.UNIFORM, inputs=[-1.0, 0.2, 1.0], objective="worst"
    ).solve(),
    "staircase": lambda: md.OptimalNoise(md.PureDP(1.0), loss="squared").solve(),
    "staircase-delta": lambda: md.OptimalNoise(md.ApproximateDP(1.0, 1e-6)).solve(),
    "count-worst": lambda: md.BoundedCount(5, md.PureDP(1.0)).solve(),
    "channel-spanner": lambda: md.MetricChannel(
        md.MetricSpace.line([0.0, 1.0, 2.5, 3.0]), 0.7, prior=[0.4, 0.3, 0.2, 0.1], spanner=1.5
    ).solve(),
}


def any_outputs() -> md.Result:
    """A bound for any outputs of a range."""
    design = md.RQM(4, md.PureDP(1.5), cheap.UNIFORM, "squared", grid=md.Grid(delta=[1.4, 1.6], q=[0.4, 0.5]))
    return design.solve(zoom=0)


@cache
def text(name: str) -> str:
    return dumps(RESULTS[name]())


@cache
def modules() -> tuple[Any, ...]:
    """Every module of the package, the verifier's too."""
    found = pkgutil.walk_packages(md.__path__, "mechdesign.")
    return tuple(importlib.import_module(each.name) for each in found if not each.name.endswith("__main__"))


@cache
def imported(home: Any, name: str) -> tuple[Any, ...]:
    """The modules that use a function of another one by its name."""
    function = getattr(home, name)
    return tuple(m for m in modules() if m is not home and vars(m).get(name) is function)


@cache
def remembering() -> tuple[Any, ...]:
    held = (each for module in modules() for each in vars(module).values())
    return tuple({id(each): each for each in held if hasattr(each, "cache_clear")}.values())


def forgotten() -> None:
    """Nothing that rests on other data is remembered."""
    for function in remembering():
        function.cache_clear()


def chosen(seed: int, x: Any) -> Fraction:
    """A number from −1 to 1, the same for the same x; of every other seed one of the ends."""
    drawn = random.Random(f"{seed} {x}")
    return Fraction(drawn.randint(-1000, 1000), 1000) if seed % 2 else Fraction(drawn.choice((-1, 1)))


def exponentials(monkeypatch: pytest.MonkeyPatch, seed: int | None) -> None:
    """Widen e^x by the relative `WIDTH` (None), or take a value inside."""

    def scaled(x: Any, side: int) -> Fraction:
        return 1 + WIDTH * (side if seed is None else chosen(seed, Fraction(x)))

    def bounds(x: Any, bits: int = 320) -> tuple[Fraction, Fraction]:
        low, high = arithmetic.exp_bounds(x, bits)
        return low * scaled(x, -1), high * scaled(x, 1)

    for home, name, made in (
        (exact, "exp_lower", lambda x: exact.exp_lower(x) * scaled(x, -1)),
        (exact, "exp_upper", lambda x: exact.exp_upper(x) * scaled(x, 1)),
        (arithmetic, "exp_bounds", bounds),
    ):
        made.__name__ = name
        for module in imported(home, name):
            monkeypatch.setattr(module, name, made)


def moments(monkeypatch: pytest.MonkeyPatch, seed: int | None) -> None:
    """Widen masses and moments of the prior by `WIDTH`, or take values inside."""
    fixed, over = enclosures._fixed, quantizer_bound.Moments.over
    unit = 1 << enclosures.BITS

    def within(low: Fraction, high: Fraction, what: Any) -> tuple[Fraction, Fraction]:
        if seed is None:
            return max(low - WIDTH, Fraction(0)), high + WIDTH
        value = max((low + high) / 2 + WIDTH * chosen(seed, what), Fraction(0))
        return value, value

    def enclosed(value: Any) -> tuple[int, int]:
        low, high = fixed(value)
        found = within(Fraction(low, unit), Fraction(high, unit), low)
        return int(found[0] * unit), int(found[1] * unit)

    def stretches(self: Any, spans: Any, name: str) -> Any:
        return [
            [within(low, high, (span, k)) for k, (low, high) in enumerate(bounds)]
            for span, bounds in zip(spans, over(self, spans, name))
        ]

    class Atoms:
        """The verifier's point masses, widened where they are read."""

        def __set__(self, held: Any, given: Any) -> None:
            held.__dict__["points"] = given

        def __get__(self, held: Any, kind: Any = None) -> Any:
            return [(x, within(*mass, x)) for x, mass in held.__dict__["points"]]

    monkeypatch.setattr(enclosures, "_fixed", enclosed)
    monkeypatch.setattr(quantizer_bound.Moments, "over", stretches)
    monkeypatch.setattr(quantizer_bound.Moments, "atoms", Atoms(), raising=False)


def by_program(name: str) -> Margins:
    """The bounds as finite linear programs, of those that are."""
    certificate, found = loads(text(name)).certificate, []
    for proof in certificate.proofs:
        if "lower bound" in proof.speaks_of:
            with suppress(NoProgramError):
                program = proof.linear_bound(certificate)
                found.append((float(program.bound), min(program._reduced) >= 0))
                found += [(float(row.multiplier * row.right), True) for row in program._rows]
    return found


def by_package(name: str) -> Margins:
    certificate = loads(text(name)).certificate
    return [(claim.margin, claim.holds) for claim in certificate.claims() if claim.margin == claim.margin]


def by_verifier(name: str) -> Margins:
    found: Margins = []

    def bounds(self: Any, claim: str, low: Any, high: Any, room: Any = 0, sure: bool = True) -> None:
        found.append((Fraction(high) - Fraction(low), Fraction(low) <= Fraction(high) + room))

    def at_most(self: Any, claim: str, low: Any, high: Any, how: str = "proved") -> None:
        found.append((high - low, low <= high))

    def said(self: Any, claim: str, holds: Any, *more: Any) -> None:
        found.append((0, bool(holds)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading.Account, "bounds", bounds)
        patch.setattr(reading.Account, "at_most", at_most)
        patch.setattr(reading.Account, "proved", said)
        verify(text(name))
    return found


def under(widen: Callable[[pytest.MonkeyPatch, int | None], None], seed: int | None,
          check: Callable[[str], Margins], name: str) -> Margins | None:  # fmt: skip
    """The margins from such data; None where the parts are refused, which claims nothing."""
    with pytest.MonkeyPatch.context() as patch:
        widen(patch, seed)
        forgotten()
        try:
            return check(name)
        except (md.MechdesignError, reading.Refused):
            return None
        finally:
            forgotten()


WAYS = {"exponentials": exponentials, "moments": moments}
CHECKS = {"package": by_package, "program": by_program, "verifier": by_verifier}
QUANTIZERS = "quantizer quantizer-samples quantizer-biased quantizer-clipped optm"
COVERED = {
    (
        "exponentials",
        "package",
    ): f"{QUANTIZERS} quantizer-worst quantizer-any-outputs optimal-noise optimal-integer-noise"
    " optimal-noise-many staircase staircase-delta vectors vectors-signs vectors-directions bounded-count count-worst"
    " metric-channel channel-spanner local-worst user-histogram user-linear metric-inputs metric-delta metric-worst",
    (
        "exponentials",
        "program",
    ): f"{QUANTIZERS} quantizer-worst optimal-noise metric-channel metric-inputs metric-delta metric-worst",
    (
        "exponentials",
        "verifier",
    ): f"{QUANTIZERS} quantizer-worst quantizer-any-outputs optimal-noise optimal-integer-noise"
    " optimal-noise-many staircase staircase-delta bounded-count count-worst metric-channel channel-spanner local-worst"
    " metric-inputs metric-delta metric-worst",
    ("moments", "package"): f"{QUANTIZERS} quantizer-any-outputs metric-quantizer metric-inputs",
    ("moments", "program"): f"{QUANTIZERS} metric-inputs",
    ("moments", "verifier"): f"{QUANTIZERS} metric-quantizer metric-inputs",
}
"""What rests on which data."""
CASES = [(*way, name) for way, names in COVERED.items() for name in names.split()]


@pytest.mark.parametrize(("way", "check", "name"), CASES)
def test_widened_data_prove_no_more(way: str, check: str, name: str, choices: int = CHOICES) -> None:
    tight, wide = CHECKS[check](name), under(WAYS[way], None, CHECKS[check], name)
    assert wide != tight, "these data are not used"
    for seed in range(choices):
        inside = under(WAYS[way], seed, CHECKS[check], name)
        for (low, holds), (high, held) in zip(wide or (), inside or (), strict=wide is not None):
            assert float(low - high) <= 1e-12 * (1 + abs(float(high))) and holds <= held


@pytest.mark.slow
@pytest.mark.parametrize(("way", "check", "name"), CASES)
def test_widened_data_prove_no_more_than_forty_choices(way: str, check: str, name: str) -> None:
    test_widened_data_prove_no_more(way, check, name, choices=40)


def balls(monkeypatch: pytest.MonkeyPatch, seed: int | None) -> None:
    """Widen the numbers that balls are made of by the relative `WIDTH`, or take numbers inside."""

    class Wide:
        """In the place of `flint.arb`, whose other names it has."""

        def __call__(self, value: Any, *radius: Any) -> arb:
            found = arb(value, *radius)
            if not isinstance(value, float | fmpq):
                return found
            if seed is None:
                return found + arb(0, abs(found).upper() * float(WIDTH))
            return found * arb(1 + float(WIDTH * chosen(seed, float(found))))

        def __getattr__(self, name: str) -> Any:
            return getattr(arb, name)

    for module in (gaussian, profile, radial, noise_bounds):
        monkeypatch.setattr(module, "arb", Wide())


LAWS = {
    "laplace": stats.laplace(scale=2.0),
    "logistic": stats.logistic(scale=1.5),
    "generalised": stats.gennorm(1.5, scale=2.0),
    "flipped-huber": md.noise.flipped_huber(alpha=1.0, gamma=2.0),
}
PROFILES: dict[str, Callable[[], tuple[float, float]]] = {
    "gaussian": lambda: gaussian.enclosed_gaussian(1.0, [(2, 1.0, 1.5, 1), (1, 0.5, 2.0, 3)]),
    "round": lambda: ends(radial.round_delta(3, Fraction(9, 8), 0.5)),
    **{name: lambda law=law: profile.enclosed_delta(law, 1.0, 0.25, loss_of(law, 1.0)) for name, law in LAWS.items()},
}  # fmt: skip


def ends(ball: arb) -> tuple[float, float]:
    return float(ball.lower()), float(ball.upper())


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_enclose_those_of_all_data_inside(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        balls(patch, None)
        low, high = PROFILES[name]()
    assert high - low > 1e-4
    for seed in range(CHOICES):
        with pytest.MonkeyPatch.context() as patch:
            balls(patch, seed)
            inside = PROFILES[name]()
        assert low <= inside[0] * (1 + 1e-12) and inside[1] <= high * (1 + 1e-12)


@pytest.mark.parametrize("j", [3, -1])
def test_what_copies_imply_of_one_is_not_more_than_of_all_data_inside(j: int) -> None:
    copies = noise_bounds.Copies.of(20, 1, 1.0, 1e-3)
    edge = optimize.brentq(lambda q: copies._below(j, 0.1, q) - 0.5, 1e-6, 0.5)
    for near in np.linspace(0.99, 1.01, 21):
        with pytest.MonkeyPatch.context() as patch:
            balls(patch, None)
            proved = copies._below(j, 0.1, near * edge)
        for seed in range(CHOICES) if proved else ():
            with pytest.MonkeyPatch.context() as patch:
                balls(patch, seed)
                assert copies._below(j, 0.1, near * edge)


@pytest.mark.parametrize(
    "name", ["quantizer", "quantizer-samples", "quantizer-biased", "quantizer-any-outputs"]
)
def test_each_sum_of_a_quantizers_bound_is_from_below(name: str) -> None:
    """The constant and every coefficient of the floors by themselves: together one would hide the other."""
    certificate = loads(text(name)).certificate
    design = certificate.question
    [proof] = [proof for proof in certificate.proofs if isinstance(proof, DualBound)]
    places = proof.duals.places(tuple(map(Fraction, certificate.law.bins.tolist())))

    def sums(seed: int | None) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            moments(patch, seed)
            prior = enclosures.Moments(design.prior)
            stated = design.privacy.epsilon, design.loss, prior, min(design.max_bias, 10.0)
            asked = dual_pieces.Asked(places, (Fraction(0), Fraction(0)), *stated)
            constant, gradient = dual_pieces._Rows(proof.duals, asked).averaged()
            return [*map(float, (constant, *gradient))]

    wide = sums(None)
    for seed in range(CHOICES):
        assert all(low <= high + 1e-12 * abs(high) for low, high in zip(wide, sums(seed)))


def test_parts_of_a_piece_are_between_bounds() -> None:
    drawn = random.Random(1)
    for _ in range(CHOICES):
        parts = [drawn.uniform(-1, 1) for _ in range(3)]
        inside = [drawn.uniform(0, 1) for _ in range(3)]
        wide = [(v - drawn.uniform(0, 0.001), v + drawn.uniform(0, 0.001)) for v in inside]
        assert quantizer_bound.below(parts, wide) <= sum(c * v for c, v in zip(parts, inside))
        (low, high), later = quantizer_bound.chord(*wide[:2])
        assert low <= inside[0] - inside[1] <= high and later[0] <= inside[1] <= later[1]
        low, high = dual_pieces.less(*wide[:2])
        assert low <= max(inside[0] - inside[1], 0.0) and inside[0] - inside[1] <= high


NARROW = Fraction(1, 10**6)
"""Of a moment: φ has its least where both ends of its slope say so, within 10⁻⁴."""
SCALES: dict[str, Callable[[], Any]] = {
    "gaussian": lambda: md.NoiseAllocation("gaussian", [1.0, 2.0], md.ApproximateDP(1.0, 1e-5), loss=1.5),
    "laplace": lambda: md.NoiseAllocation("laplace", [1.0, 2.0], md.ApproximateDP(1.0, 1e-3), loss=0.5),
    "rows": cheap.scales,
}


@pytest.mark.parametrize("name", SCALES)
def test_the_bound_of_scales_from_widened_data_is_not_more(name: str) -> None:
    """Moments and budgets, which are no rationals: widened, and 40 choices inside, in package and verifier."""
    result = SCALES[name]().solve()
    [proof], design = result.proofs, result.design
    mixes = [one.sensitivities for one in design.asked] if proof.mixes is None else proof.mixes

    def package(patch: pytest.MonkeyPatch, seed: int | None) -> float:
        plain, budget = lagrangian.moment, ScalesPrivacy.most

        def most(self: Any) -> Fraction:
            held = budget.func(self)
            return held * (1 + NARROW if seed is None else 1 + NARROW * chosen(seed, self.label))

        def moment(noise: str, order: float) -> arb:
            found = plain(noise, order)
            if seed is None:
                return found * arb(1, float(NARROW))
            return found * arb(1 + float(NARROW * chosen(seed, order)))

        patch.setattr(ScalesPrivacy, "most", property(most))
        patch.setattr(lagrangian, "moment", moment)
        return float(proof.proved(design, math.inf))

    def verifier(patch: pytest.MonkeyPatch, seed: int | None) -> float:
        """Of budgets from above; its decimals have no moments with two ends."""
        ends = verified_scales.normal_ends.__wrapped__

        def widened(epsilon: Any, delta: Any) -> tuple[Any, Any]:
            low, high = ends(epsilon, delta)
            width = Decimal(NARROW.numerator) / NARROW.denominator
            if seed is None:
                return low * (1 - width), high * (1 + width)
            share = 1 + width * Decimal(float(chosen(seed, epsilon)))
            return low * share, low * share

        patch.setattr(verified_scales, "normal_ends", widened)
        held = reading.Reader().read(dumps(result))
        asked = verified_scales.of_problem if name == "rows" else verified_scales.of_allocation
        with localcontext() as context:
            context.prec = composition.PLACES
            question = asked(held["design"])
            profiles = [list(map(float, mix)) for mix in mixes]
            [stated] = held["proofs"]
            return float(verified_scales.separated(question, stated, profiles, 1e300))

    for way in (package, verifier):
        with pytest.MonkeyPatch.context() as patch:
            wide = way(patch, None)
        assert wide < result.lower_bound * (1 - 1e-8) or (way is verifier and name == "laplace")
        for seed in range(CHOICES):
            with pytest.MonkeyPatch.context() as patch:
                assert wide <= way(patch, seed) * (1 + 1e-14)
