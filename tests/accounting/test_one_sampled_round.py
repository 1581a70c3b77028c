"""One sampled round against its definition, both directions."""

from __future__ import annotations

from pathlib import Path

import mpmath
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.accounting.interval import NoiseTerm, delta_interval, lower_delta, upper_delta, verified_delta
from mechdesign.noise import discrete_gaussian
from mechdesign.verifier.verify import verify


def _by_definition(sigma: float, shift: float, rate: float, epsilon: float, *, whole: bool) -> mpmath.mpf:
    """The larger of both hockey-stick divergences: what is positive, summed or integrated where it is."""
    with mpmath.workdps(120):
        s, q, e = mpmath.mpf(sigma), mpmath.mpf(rate), mpmath.exp(epsilon)

        def weight(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.exp(-(x**2) / (2 * s**2))

        def mixed(x: mpmath.mpf) -> mpmath.mpf:
            return (1 - q) * weight(x) + q * weight(x - shift)

        gains = (lambda x: mixed(x) - e * weight(x)), (lambda x: weight(x) - e * mixed(x))
        if whole:
            points = [mpmath.mpf(i) for i in range(-60, 61)]
            unit = sum(map(weight, points))
            return max(sum(max(gain(x), 0) for x in points) for gain in gains) / unit
        where = s**2 / shift * mpmath.log1p((e - 1) / q) + mpmath.mpf(shift) / 2
        found = [q * mpmath.ncdf((shift - where) / s) - (e - 1 + q) * mpmath.ncdf(-where / s)]
        if e * (1 - q) < 1:
            back = s**2 / shift * mpmath.log((1 / e - 1 + q) / q) + mpmath.mpf(shift) / 2
            found.append((1 - e + e * q) * mpmath.ncdf(back / s) - e * q * mpmath.ncdf((back - shift) / s))
        return max(found)


@pytest.mark.parametrize("rate", [1e-6, 0.1, 0.4, 0.999])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0, 6.0])
@pytest.mark.parametrize("whole", [False, True])
def test_a_sampled_round_is_known_to_doubles(rate: float, epsilon: float, whole: bool) -> None:
    law, shift = (discrete_gaussian(1.25), 3.0) if whole else (stats.norm(scale=0.8), 1.0)
    true = _by_definition(1.25 if whole else 0.8, shift, rate, epsilon, whole=whole)
    found = delta_interval(NoiseTerm(law, shift), epsilon, sampling_rate=rate)
    assert found.lower <= true <= found.upper <= found.lower * (1 + 1e-9)


@pytest.mark.parametrize("count", [1, 6])
def test_every_bound_of_a_sampled_round_lies_on_its_side(count: int) -> None:
    """Several coordinates that move by 1 are one that moves by √6."""
    terms = NoiseTerm(stats.norm(scale=2.0), 1.0, count)
    true = _by_definition(2.0, count**0.5, 0.3, 0.5, whole=False)
    for upper in (upper_delta, verified_delta):
        assert true <= upper(terms, 0.5, sampling_rate=0.3) <= true * 1.01
    assert true * 0.99 <= lower_delta(terms, 0.5, sampling_rate=0.3) <= true
    composed = delta_interval(terms, 0.5, sampling_rate=0.3, closed_form=False)
    assert composed.lower <= true <= composed.upper


@pytest.mark.parametrize(
    "noise, epsilon, delta, change, rate, sigma",
    [
        ("gaussian", 1000.0, 1e-5, 1.0, 0.1, 0.024254598),
        ("discrete_gaussian", 1.0, 0.27122238, 3.0, 0.4, 0.993),
        ("gaussian", 2000.0, 1e-5, 1.0, 1e-3, None),
    ],
)
def test_one_sampled_round_takes_the_least_noise(
    noise: str, epsilon: float, delta: float, change: float, rate: float, sigma: float | None, tmp_path: Path
) -> None:
    """Down to the least scale, at any ε, and the verifier proves it from the file alone."""
    privacy = md.ApproximateDP(epsilon, delta)
    found = md.calibrate(noise, privacy=privacy, sensitivity=change, sampling_rate=rate)
    if sigma is not None:
        assert found.value**0.5 == pytest.approx(sigma, rel=1e-4)
    assert found.mechanism.delta_interval(epsilon).upper <= delta
    assert found.certificate.verify()
    found.save(tmp_path / "noise.json")
    assert all(holds for *_, holds in verify((tmp_path / "noise.json").read_text()).rows)


def test_points_of_a_curve_are_kept_by_one_sampled_round() -> None:
    curve = md.TradeOff([(0, 0.08), (1, 1e-5), (3, 0.5)])
    found = md.calibrate("gaussian", privacy=curve, sensitivity=1.0, sampling_rate=0.1)
    shares = [found.mechanism.delta_interval(e).upper / d for e, d in curve.points]
    assert 1 - 1e-6 < max(shares) <= 1
