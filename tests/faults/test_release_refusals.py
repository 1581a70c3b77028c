"""Every error that a value of the data raises in a release or a fit is on the list of `DataError`, and quotes nothing."""

import inspect
import itertools
import math
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.noise.correlated_noise import released
from mechdesign.noise.release import ExactNoise, noisy, noisy_parts
from mechdesign.noise.vector_noise import IndependentNoise, MixedNoise
from mechdesign.user_level import LinearQuery
from tests.timing.releases import RELEASES, Release

NUMBERS = [
    *(math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 1e300, 1e100, -1e17, 2.0**53 + 2, 300.0, 7.0, 2.0, 1.0),
    *(0.5, 0.1, 1e-170, 5e-324, 0.0, -0.0, -5e-324, -0.5, -1.0, -3.0),
]  # fmt: skip
ODD = [None, "7", "seven", 2**60 + 1, -(10**400), 1j, True, np.ma.masked]
"""What may stand in a list of records in the place of a number."""

NUMBER = {"must be finite numbers"}
NOISE = NUMBER | {"would be rounded"}
ITEMS = {"must be integers in"}
SHARES = NOISE | {"must be non-negative", "must sum to 1"}
RANGE = NOISE | {"must be in"}
BALL = NOISE | {"must be at most"}
STATED = {
    "discrete Gaussian": NOISE | {"must be whole numbers"},
    "optimal choice": NOISE | {"must be whole numbers"},
    "optimal integer noise": NUMBER | {"must be whole numbers"},
    **dict.fromkeys(("optimal quantizer", "metric quantizer", "RQM", "biased selection", "integer table"), RANGE),
    "coordinates": RANGE,
    **dict.fromkeys(("sphere", "sphere, messages", "random directions", "sampled coordinates", "sampled signs"), BALL),
    **dict.fromkeys(("exponential channel", "local report", "local histogram", "bounded count", "clustered response", "Hadamard response"), NUMBER | ITEMS),
    **dict.fromkeys(("items of users", "sampled items of users", "histogram of users"), NUMBER | ITEMS),
    **{name: SHARES for name in RELEASES if name.startswith("linear query")},
    "plan": NOISE | {"must be whole numbers"},
    "plan of workloads": NOISE | {"must count at most"},
    "declared table": {"must be inputs of"},
    "Laplace histogram": SHARES - {"would be rounded"},
}  # fmt: skip
"""What each release refuses, in the words of `DataError`; noise refuses `NOISE`."""
FITS = ("principal components", "bounded regression", "bounded classification", "regression of counts")


def calls(release: Release) -> Iterator[Callable[[Any], object]]:
    """The call that is timed, and the one that does not clip."""
    yield release.method(release.mechanism)
    if "clip" in inspect.signature(getattr(release.mechanism, "release", release.made)).parameters:
        yield release.mechanism.release


def said(call: Callable[[Any], object], x: object) -> list[str]:
    """What the call says in warnings and in an error; an error of the data is the only one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call(x)
        except md.DataError as error:
            return [*(str(w.message) for w in caught), str(error)]
    return [str(w.message) for w in caught]


def templates(release: Release) -> Iterator[np.ndarray]:
    """Data of each shape that is timed."""
    shapes = {np.shape(x): x for pair in release.pairs(release.mechanism).values() for x in pair}
    return (np.asarray(x, dtype=float) for x in shapes.values())


def changed(base: np.ndarray) -> Iterator[object]:
    """One or all numbers replaced; and the same in lists, with what is no number."""
    for value in NUMBERS:
        for at in (slice(0, 1), slice(-1, None), slice(None)):
            x = base.copy().ravel()
            x[at] = value
            yield x.reshape(base.shape)
    for value in ODD:
        x = base.astype(object).ravel()
        x[-1] = value
        yield x.reshape(base.shape).tolist()
    yield from (np.full_like(base, 1e300) * [1, -1][k] for k in range(2))


def stated(release: str, messages: set[str]) -> set[str]:
    """The words of the list for these messages, each of which is worded alike whatever the value was."""
    words = STATED.get(release, NOISE)
    if release.startswith("plan"):  # which names the task
        messages = {message.partition(": ")[2] for message in messages}
    found = [[m for m in messages if word in m] for word in words]
    assert sum(map(len, found)) == len(messages), messages
    assert max(map(len, found), default=0) <= 1, messages
    return {word for word, those in zip(words, found) if those}


@pytest.mark.parametrize("name", [name for name in RELEASES if name not in FITS])
def test_what_a_release_refuses_is_what_is_stated(name: str) -> None:
    found = set()
    for call in calls(RELEASES[name]):
        for base in templates(RELEASES[name]):
            messages = set(itertools.chain(*(said(call, x) for x in changed(base))))
            found |= stated(name, messages)
    assert found == STATED.get(name, NOISE)
    assert all(word in (md.DataError.__doc__ or "") for word in found)


@pytest.mark.parametrize("name", RELEASES)
def test_each_docstring_names_what_is_refused(name: str) -> None:
    mechanism = RELEASES[name].mechanism
    if name in FITS:
        assert "The guarantee does not cover" in " ".join((inspect.getdoc(mechanism) or "").split())
        return
    named = {"stream": "matrix mechanism, stream", "encode": "sphere, messages"}
    for method in ("release", *(m for m, of in named.items() if name == of)):
        assert "DataError" in (inspect.getdoc(getattr(mechanism, method)) or ""), method


@pytest.mark.parametrize("name", FITS)
def test_fits_refuse_what_is_no_finite_number_and_nothing_else(name: str) -> None:
    """Constant columns, a single class, records of any size: not a word."""
    release = RELEASES[name]
    call, (base, _) = release.method(release.mechanism), next(iter(release.pairs(release.mechanism).values()))
    for value, column in itertools.product(NUMBERS, (0, 1, slice(None))):
        for rows in (slice(0, 1), slice(None)):
            x = base.copy()
            x[rows, column] = value
            with np.errstate(invalid="ignore"):
                if np.isfinite(x).all():
                    assert said(call, x) == []
                    continue
            with pytest.raises(md.DataError, match="must be finite numbers: nothing infinite"):
                call(x)
    fit, y = release.mechanism.fit, np.sign(base[:, 0])
    for odd in (None, "seven", 10**400, 1j, [1.0, 2.0]):
        rows = base.tolist()
        rows[0][0] = odd
        with pytest.raises(md.DataError, match="must be finite numbers: nothing infinite"):
            fit(rows, y)


def test_counts_that_are_not_those_of_the_sizes_are_refused() -> None:
    release = RELEASES["linear query, several users"].mechanism
    for counts, sizes, words in (
        ([5.0, 1, 0, 0, 0, 0], 4, "must be equal"),
        ([0.5, 0.5, 0, 0, 0, 0], 4, "is for whole counts"),
        ([5.0, 1, 0, 0, 0, 0], None, "must be given with"),
    ):
        with pytest.raises(md.DataError, match=words):
            release.release(counts, sizes=sizes)
        assert words in (md.DataError.__doc__ or "")


@pytest.mark.parametrize("inputs", ["ball", "sphere"])
def test_vectors_of_any_length_are_clipped(inputs: str) -> None:
    """One without a direction was refused on a sphere, and lengths beyond doubles became no numbers."""
    mechanism = md.SphereQuantizer(20, 3, md.PureDP(1.0), inputs=inputs, radius=1e-50)
    axis = np.eye(1, 20)[0]
    for x in (axis * 0.0, axis * 1.7e308, np.full(20, -1.7e308), axis * 5e-324):
        lifted = mechanism.lifted(x, clip=True)
        assert np.linalg.norm(lifted, axis=1) == pytest.approx(1.0)
        assert np.isfinite(mechanism.release(x, clip=True)).all()
    assert mechanism.lifted(axis * 1.7e308, clip=True)[0, 0] == pytest.approx(1.0)
    with pytest.raises(md.DataError, match="must be"):
        mechanism.release(axis, clip=False)


@pytest.mark.skipif(np.finfo(np.longdouble).max <= np.finfo(float).max, reason="no long doubles here")
def test_a_number_beyond_doubles_is_refused_without_a_warning() -> None:
    noise = md.AdditiveNoise(stats.laplace(scale=2.0), 1.0)
    for far in (np.longdouble("1e4000"), [np.longdouble("-1e4000")], 10**400):
        assert said(noise.release, far) == [
            "x: must be finite numbers of at most 1.8e308; true and false are none, nor are texts, dates and what is missing"
        ]


# -- What leaves the machine: refusals and warnings that no single record decides, pooled counts, words of the wrong width

LINE = md.MetricSpace.line([0.0, 1.0, 2.0])


@pytest.mark.parametrize("options", [{}, {"gaussian": True, "delta": 1e-6}])
def test_pooled_counts_need_equal_sizes(options: dict[str, Any]) -> None:
    """One person with 100,000 items and seven with 30 would move the pooled mean by nearly all of it."""
    release = md.LinearRelease(LinearQuery.histogram(LINE), alpha=1e9, users=8, **options)
    for counts in ([100_000, 110, 100], [10, 10, 4], [8, 0, 0]):
        with pytest.raises(md.DesignError, match="sizes"):
            release.release(counts)
    for sizes in ([100_000] + [30] * 7, [3] * 7, [2] * 8, 2, 0, 3.5, "3"):
        with pytest.raises(md.DesignError, match="sizes"):
            release.release([10, 10, 4], sizes=sizes)
    for sizes in (3, [3] * 8):
        assert release.release([10, 10, 4], sizes=sizes) == pytest.approx(
            [10 / 24, 10 / 24, 1 / 6], abs=100 * release.scale
        )


HEADER = md.vectors.c_header(
    md.vectors.IntegerTable.of(md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)))
)
WORDS = {
    "bytes": ("quantizer_word w = {{1, 2, 3, 4, 5, 6, 7, 8}};", "w", True),
    "32 bits": ("uint32_t w = 7;", "w", False),
    "64 bits": ("uint64_t w = 7;", "w", False),
    "what rand() gives": ("int w = 7;", "w", False),
    "made of a number": ("uint32_t w = 7;", "(quantizer_word){w}", False),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_word_of_the_wrong_type_does_not_compile(name: str, tmp_path: Path) -> None:
    """A number of 32 bits was widened without a word, and every output was then the same."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    made, given, compiles = WORDS[name]
    (tmp_path / "quantizer.h").write_text(HEADER)
    (tmp_path / "main.c").write_text(
        f'#include "quantizer.h"\nint main(void) {{ {made} '
        f"return quantizer_decode(quantizer_encode(0.5, {given})) > 9; }}\n"
    )
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.c", "-o", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == compiles, done.stderr


# -- What a release betrays besides its answer: by its time, by a refusal, by a count that doubles cannot hold, by no noise at all

PRIVACY = md.ApproximateDP(1.0, 1e-6)


class NoNoise:
    def draw(self, size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)


@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.sampled_from([-300, -20, 0, 20, 90]),
    st.sampled_from([-3, 0, 100]),
)
def test_whitened_answers_are_rounded_exactly(seed: int, size: int, power: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    whitening = rng.normal(size=(size, size)) * 10.0 ** (spread * rng.integers(-1, 2, size))
    held = rng.normal(size=(3, size)) * 10.0 ** (power + rng.integers(-8, 9, size))
    held[0, 0] = 0.0
    step = 2.0**-40
    found = released(whitening, held, step, NoNoise())
    for row, out in zip(held.tolist(), found):
        for line, value in zip(whitening.tolist(), out.tolist()):
            image = sum((Fraction(a) * Fraction(b) for a, b in zip(line, row)), Fraction(0))
            assert value == float(math.floor(image / Fraction(step) + Fraction(1, 2)) * Fraction(step))


@given(
    st.floats(-1e100, 1e100),
    st.floats(0, 8),
    st.floats(1e-60, 1e60),
    st.integers(-(2**61), 2**61),
    st.booleans(),
)
def test_answers_of_any_size_are_rounded_to_neighbouring_steps(x, share, scale, draw, power_of_two) -> None:
    """What leaves is made of q(x) + Z alone, and q moves by at most λ/h + 2 steps, ⌈λ/h⌉ where h is a power of two."""
    step = math.ldexp(1.0, math.frexp(scale)[1]) if power_of_two else scale
    y = x + share * step
    steps = []
    for value in (x, y):
        far, near = noisy_parts(value, step)
        unit = round(Fraction(math.ldexp(1.0, math.frexp(step)[1] + 48)) / Fraction(step))
        steps.append(int(far) * unit + int(near))
    moved, apart = steps[1] - steps[0], (Fraction(y) - Fraction(x)) / Fraction(step)
    if power_of_two:
        assert abs(moved) <= math.ceil(abs(apart))
        exact = (math.floor(Fraction(x) / Fraction(step) + Fraction(1, 2)) + draw) * Fraction(step)
        assert float(noisy(np.array([x]), step, np.array([draw]))[0]) == pytest.approx(
            float(exact), rel=1e-15
        )
    else:
        assert abs(moved - apart) <= 2 + abs(apart) * Fraction(1, 2**48)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "release",
    [
        md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1).mechanism.release,
        md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1e-9).mechanism.release,
        md.OptimalNoise(md.PureDP(1.0)).solve(gap=0.9).mechanism.release,
        lambda x: IndependentNoise("laplace", np.array([1e-9, 3.0]), np.array([1e-9, 1.0])).release([x, x])[1],
        lambda x: md.CountsGaussian(2, 1, PRIVACY).solve().mechanism.release([x, x])[0],
        lambda x: next(
            md.MatrixMechanism(md.Workload.prefix_sums(2), PRIVACY).solve().mechanism.stream([x])
        ),
    ],
    ids=["laplace", "narrow laplace", "optimal", "independent", "counts", "stream"],
)  # fmt: skip
def test_no_magnitude_of_an_answer_is_refused(release) -> None:
    for x in (0.0, 5e-324, 1e-310, 1.5, 2.0**51, -(2.0**60), 1e17, -1e100):
        assert release(x) == pytest.approx(x, abs=200, rel=1e-9)
    for x in (1e300, -1.7e308):
        assert np.sign(release(x)) == np.sign(x)


def test_a_coordinate_that_never_changes_gets_noise_of_its_type() -> None:
    """Laplace noise on a coordinate of sensitivity 0 was released as Gaussian noise, of half the variance."""
    law = MixedNoise([1.0, 2.0, 3.0], [True, False, True], [1.0, 1.0, 0.0])
    drawn = law.release(np.zeros((20_000, 3)))
    for column, own in zip(drawn.T, (stats.laplace(), stats.norm(scale=2), stats.laplace(scale=3))):
        assert stats.kstest(column, own.cdf).pvalue > 1e-6


@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_a_tail_above_every_geometric_hat_is_refused(beta: float) -> None:
    """Beyond the quantile of 1e-7 the hat fell below the density: the tail was cut, another law than the one stated."""
    with pytest.raises(md.DesignError, match="log-concave"):
        md.AdditiveNoise(stats.gennorm(beta), 1.0).release(0.0)
    assert ExactNoise(stats.gennorm(1.0)).draw(3).shape == (3,)


@pytest.mark.parametrize(("kind", "change"), [("gaussian", 1e-170), ("laplace", 1e-320)])
def test_changes_far_below_the_lattice_are_refused(kind: str, change: float) -> None:
    """The square of 1e-170 is 0 in doubles: the noise was not widened for a lattice whose steps are 2⁻³⁰."""
    with pytest.raises(md.DesignError, match="above the sensitivit"):
        IndependentNoise(kind, np.array([1.0, 2.0]), np.array([change, 0.0])).release([0.0, 0.0])
