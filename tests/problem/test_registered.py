"""A user's law, loss and prior in files: by the name that the user's program registers, and by nothing else."""

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
import mechdesign.noise.laws.staircase
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
    design = md.OptimalQuantizer([-2, -0.5, 0.5, 2], md.PureDP(1.5), stats.uniform(-1, 2), loss=quartic)
    md.register_loss("test-quartic", quartic)
    result = design.solve()
    result.save(tmp_path / "a.json")
    again = md.load(tmp_path / "a.json")
    assert again.design.loss.function is quartic and again.checks().equals(result.checks())
    assert again.checks()["holds"].all()
    forget()
    left = md.load(tmp_path / "a.json")
    assert left.design.loss.name == "test-quartic"
    with pytest.raises(md.DesignError, match=r"md\.register_loss\('test-quartic', function\)"):
        left.design.loss(np.zeros(1))
    assert dumps(left) == (tmp_path / "a.json").read_text()  # the name survives where the function is missing


def test_a_function_of_the_same_name_is_not_taken_for_it():
    text = dumps(md.noise.Calibration("laplace", md.PureDP(1), 1.0)) and dumps(quartic)
    md.register_loss("quartic", np.exp)
    assert isinstance(loads(text), UnavailableCallable)  # it was not registered when it was saved


def test_a_prior_given_as_a_function(tmp_path):
    law = md.density(lambda x: np.exp(-(x**4)), -1, 1, name="test-flat-top")
    assert law.cdf(1.0) == 1.0 and law.cdf(0.0) == pytest.approx(0.5, abs=1e-13)
    x = np.linspace(-1, 1, 7)
    np.testing.assert_allclose(law.cdf(x), [stats.rv_continuous.cdf(law.dist, v) for v in x])
    result = md.OptimalQuantizer([-2, -0.5, 0.5, 2], md.PureDP(1.5), law).solve()
    result.save(tmp_path / "a.json")
    again = md.load(tmp_path / "a.json")
    assert again.mechanism.expected_loss(again.design.prior) == pytest.approx(result.value, rel=1e-9)
    draws = law.rvs(size=200, random_state=0)
    assert draws.min() >= -1 and draws.max() <= 1
    forget()
    with pytest.raises(md.ResultFormatError, match="test-flat-top"):
        md.load(tmp_path / "a.json")


@pytest.mark.parametrize(
    "call",
    [
        lambda: md.register_law("norm", Ramp(a=0, b=1)),
        lambda: md.register_law("staircase", Ramp(a=0, b=1)),
        lambda: md.register_law("", Ramp(a=0, b=1)),
        lambda: md.register_law("a b", Ramp(a=0, b=1)),
        lambda: md.register_law(3, Ramp(a=0, b=1)),
        lambda: md.register_law("test-x", stats.norm(0, 1)),
        lambda: md.register_law("test-x", stats.rv_histogram(np.histogram([1.0, 2.0]))),
        lambda: md.register_loss("test-x", 3),
        lambda: md.register_loss("a/b", quartic),
        lambda: md.density(3, -1, 1, name="test-x"),
        lambda: md.density(lambda x: x, -1, 1, name="test-x"),
        lambda: md.density(lambda x: 0 * x, -1, 1, name="test-x"),
        lambda: md.density(lambda x: 1.0, -1, 1, name="test-x"),
        lambda: md.density(lambda x: 1 / x**2, -1, 1, name="test-x"),
        lambda: md.density(lambda x: (x > 0.123) * 1.0, -1, 1, name="test-x"),
        lambda: md.density(lambda x: x**2, 1, -1, name="test-x"),
        lambda: md.density(lambda x: x**2, -1, 1, name="norm"),
        lambda: md.density(lambda x: x.nonsense(), -1, 1, name="test-x"),
    ],
)
def test_bad_input(call):
    with pytest.raises(md.DesignError) as caught:
        call()
    assert "\n" not in str(caught.value)
