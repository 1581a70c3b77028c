"""PyTorch: module, hook and whole models; without PyTorch the extra is named."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np
import pytest

import mechdesign as md

V = md.vectors
MECHANISM = md.SphereQuantizer(12, 3, md.PureDP(6.0))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    actual = builtins.__import__

    def without(name: str, *words: Any, **more: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return actual(name, *words, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(md.MissingExtra, match=r"mechdesign\[torch\]"):
        V.gradient_hook(MECHANISM)


@pytest.mark.parametrize("function", [V.torch_module, V.gradient_hook])
def test_other_mechanisms_are_refused(function: Any) -> None:
    with pytest.raises(md.DesignError, match="mechanism"):
        function(md.PrivUnit(12, md.PureDP(1.0)))
    with pytest.raises(md.DesignError, match="clip"):
        function(MECHANISM, clip="yes")


class TestWithTorch:
    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        self.t = pytest.importorskip("torch")
        return self.t

    def test_module(self) -> None:
        x = self.t.full((4000, 12), 0.1, dtype=self.t.float32, requires_grad=True)
        answers = V.torch_module(MECHANISM, rng=0)(x)
        assert answers.dtype == x.dtype and answers.shape == x.shape
        error = answers.std(dim=0).max().item() / math.sqrt(len(x))
        assert abs(answers.mean(dim=0) - 0.1).max().item() < 5 * error
        answers.sum().backward()
        assert bool((x.grad == 1).all())  # straight through

    def test_deployment_draws_anew(self) -> None:
        module = V.torch_module(MECHANISM)
        x = self.t.zeros(3, 12, dtype=self.t.float64)
        assert not bool((module(x) == module(x)).all()) and "SphereQuantizer" in repr(module)

    def test_hook(self) -> None:
        w = self.t.zeros(3, 4, requires_grad=True)
        w.register_hook(V.gradient_hook(MECHANISM, rng=1))
        (w * 5.0).sum().backward()
        length = float((w.grad**2).sum() ** 0.5)
        assert w.grad.shape == (3, 4) and 0 < length <= MECHANISM.factor * (1 + 1e-6)

    def test_whole_model(self) -> None:
        model = self.t.nn.Linear(3, 3)
        self.t.manual_seed(0)
        before = model(self.t.ones(5, 3)).pow(2).mean()
        before.backward()
        raw = self.t.cat([p.grad.reshape(-1) for p in model.parameters()])
        V.privatize_gradients(model, MECHANISM, rng=2)
        private = self.t.cat([p.grad.reshape(-1) for p in model.parameters()])
        assert private.shape == raw.shape and not bool((private == raw).all())

    def test_what_is_refused(self) -> None:
        t, module = self.t, V.torch_module(MECHANISM)
        for bad in (
            t.zeros(12, dtype=t.int64),
            t.full((12,), math.nan),
            t.zeros(11),
            t.zeros(12, device="meta"),
            np.zeros(12),
        ):
            with pytest.raises(md.DesignError):
                module(bad)
        with pytest.raises(md.DesignError, match="dimension"):
            V.gradient_hook(MECHANISM)(t.zeros(5))
        with pytest.raises(md.DesignError, match="backward"):
            V.privatize_gradients(t.nn.Linear(3, 3), MECHANISM)
        with pytest.raises(md.DesignError, match="Module"):
            V.privatize_gradients("model", MECHANISM)
        model = t.nn.Linear(2, 2)
        model(t.ones(1, 2)).sum().backward()
        kept = model.weight.grad.clone()
        with pytest.raises(md.DesignError):
            V.privatize_gradients(model, MECHANISM)
        assert bool((model.weight.grad == kept).all())

    def test_tensors_as_vectors(self) -> None:
        x = self.t.zeros(2, 12)
        assert MECHANISM.decode(MECHANISM.encode(x)).shape == (2, 12)
        with pytest.raises(md.DesignError, match="processor"):
            MECHANISM.encode(self.t.zeros(12, device="meta"))
