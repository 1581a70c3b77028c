"""A user's law, loss and prior in files: by the name that the user's program registers, and by nothing else."""

from collections.abc import Iterator
from contextlib import suppress

import cheap
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
import mechdesign.noise.laws
from mechdesign.evidence import serialize
from mechdesign.evidence.serialize import UnavailableCallable, dumps, loads


class Ramp(stats.rv_continuous):
    def _pdf(self, x):
        return 2 * (x - self.a) / (self.b - self.a) ** 2

    def _cdf(self, x):
        return ((x - self.a) / (self.b - self.a)) ** 2


def quartic(t):
    return np.asarray(t) ** 4


def forget():
    for name in [n for n in serialize.LAWS if n.startswith("test-")]:
        del serialize.LAWS[name]
    serialize.LOSSES.clear()


@pytest.fixture(autouse=True)
def clean():
    yield
    forget()


def test_a_law():
    law = Ramp(a=0, b=1, name="test-ramp")()
    with pytest.raises(md.DesignError, match=r"md\.register_law"):
        dumps(law)
    md.register_law("test-ramp", Ramp(a=0, b=1, name="test-ramp"))
    text = dumps(law)
    assert loads(text).cdf(0.5) == 0.25
    # another instance of the class is another law
    with pytest.raises(md.DesignError, match="nor registered"):
        dumps(Ramp(a=0, b=2, name="test-ramp")())
    forget()
    with pytest.raises(
        md.ResultFormatError, match=r"register it before loading: md\.register_law\('test-ramp'"
    ):
        loads(text)


def test_a_loss(tmp_path):
    md.register_loss("test-quartic", quartic)
    text = dumps(md.OptimalQuantizer([-2, -0.5, 0.5, 2], md.PureDP(1.5), stats.uniform(-1, 2), loss=quartic))
    assert loads(text).loss.function is quartic
    forget()
    left = loads(text)
    with pytest.raises(md.DesignError, match=r"md\.register_loss\('test-quartic', function\)"):
        left.loss(np.zeros(1))
    assert dumps(left) == text  # the name survives where the function is missing
    text = dumps(quartic)
    md.register_loss("quartic", np.exp)
    assert isinstance(loads(text), UnavailableCallable)  # it was not registered when it was saved


def test_a_prior_given_as_a_function():
    law = md.density(lambda x: np.exp(-(x**4)), -1, 1, name="test-flat-top")
    assert law.cdf(1.0) == 1.0 and law.cdf(0.0) == pytest.approx(0.5, abs=1e-13)
    x = np.linspace(-1, 1, 7)
    np.testing.assert_allclose(law.cdf(x), [stats.rv_continuous.cdf(law.dist, v) for v in x])
    text = dumps(md.Prior.of(law))
    assert loads(text).law.cdf(0.3) == law.cdf(0.3)
    forget()
    with pytest.raises(md.ResultFormatError, match="test-flat-top"):
        loads(text)


# -- `help` of every design shows in its first 60 lines what it takes and how it is used, and nothing that Python gives every class


# -- What a person at a prompt sees: fields, audits ----------------------------------------------------------


@pytest.mark.parametrize("name", cheap.DESIGNS)
def test_a_design_prints_its_fields_never_an_address(name: str) -> None:
    design = cheap.DESIGNS[name][0]()
    assert " at 0x" not in repr(design) + str(design)
    if name in ("optm", "optimal-quantizer", "calibration", "plan"):
        result = cheap.solved(name)
        assert " at 0x" not in repr(result) + repr(result.mechanism) + repr(result.certificate)


def prints(name: str) -> Iterator[str]:
    """What a person prints of a result."""
    result = cheap.solved(name)
    yield from map(str, (result, result.mechanism, result.certificate))
    yield repr(result.audit())
    with suppress(md.DesignError):  # a design that states no program
        yield str(result.problem())


def test_prints_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in cheap.DESIGNS:
        for text in prints(name):
            assert max(map(len, text.splitlines())) <= 80, text
