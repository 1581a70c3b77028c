"""PyTorch: vector mechanisms as a module, as a hook on a tensor's gradient, and on all gradients of a model at once.

Codes are drawn exactly, with the operating system's randomness, on the processor; what is handed back lies where the tensor lay, in its type.
A step whose whole gradient goes through one mechanism once consumes its ε once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from mechdesign.errors import DesignError, MissingExtra
from mechdesign.problem.checks import generator, one_of
from mechdesign.vectors.sampled import SampledCoordinates, SampledSigns
from mechdesign.vectors.sphere import SphereQuantizer

__all__ = ["gradient_hook", "privatize_gradients", "torch_module"]

Mechanism = SphereQuantizer | SampledSigns | SampledCoordinates


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra.of("torch", "a vector mechanism on tensors", "PyTorch") from None
    return torch


def _mechanism(mechanism: Any) -> Mechanism:
    if not isinstance(mechanism, (SphereQuantizer, SampledSigns, SampledCoordinates)):
        wanted = "must be a SphereQuantizer, SampledSigns or SampledCoordinates"
        raise DesignError.of("mechanism", mechanism, wanted)
    return mechanism


def _answer(mechanism: Any, x: Any, clip: bool, rng: Any) -> Any:
    """The private answer to a tensor (..., d), where it lies and in its type."""
    torch = _torch()
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        raise DesignError.of("x", x, "must be a tensor of floating-point numbers")
    if x.device.type == "meta" or x.layout is not torch.strided:
        raise DesignError.of("x", f"{x.layout} tensor on {x.device}", "must be a dense tensor with data")
    plain = x.detach().to("cpu", torch.float64).numpy()
    answer = (
        mechanism.release(plain, clip=clip) if rng is None else mechanism.sample(plain, rng=rng, clip=clip)
    )
    return torch.from_numpy(answer).to(x.device, x.dtype)


@lru_cache(maxsize=1)
def _module_class() -> Any:
    torch = _torch()

    class VectorModule(torch.nn.Module):  # type: ignore[name-defined,misc]
        """Answers vectors privately; the gradient passes as if they were unchanged."""

        def __init__(self, mechanism: Any, clip: bool, rng: Any) -> None:
            super().__init__()
            self.mechanism, self.clip, self.rng = mechanism, clip, rng

        def forward(self, x: Any) -> Any:
            answer = _answer(self.mechanism, x, self.clip, self.rng)
            return x + (answer - x).detach()

        def extra_repr(self) -> str:
            return repr(self.mechanism)

    return VectorModule


def torch_module(mechanism: Mechanism, *, clip: bool = True, rng: Any = None) -> Any:
    """Return a `torch.nn.Module` whose forward pass is the mechanism, on the last axis.

    Parameters
    ----------
    mechanism : SphereQuantizer, SampledSigns or SampledCoordinates
    clip : bool
        Shorten vectors that are too long.
    rng : seed or numpy Generator, optional
        Simulate; draw for deployment when not given.

    Raises
    ------
    MissingExtra
        PyTorch is not installed.
    """
    made, kept = _mechanism(mechanism), one_of("clip", clip, (True, False))
    return _module_class()(made, kept, None if rng is None else generator(rng))


def gradient_hook(mechanism: Mechanism, *, clip: bool = True, rng: Any = None) -> Callable[[Any], Any]:
    """Return a hook for ``tensor.register_hook``: the gradient, as one vector of d numbers, is replaced by its private answer."""
    made, kept = _mechanism(mechanism), one_of("clip", clip, (True, False))
    _torch()
    source = None if rng is None else generator(rng)

    def hook(gradient: Any) -> Any:
        if gradient.numel() != made.dimension:
            raise DesignError(
                f"a gradient of {gradient.numel()} numbers: the mechanism's dimension is {made.dimension}"
            )
        return _answer(made, gradient.reshape(-1), kept, source).reshape(gradient.shape)

    return hook


def privatize_gradients(model: Any, mechanism: Mechanism, *, clip: bool = True, rng: Any = None) -> None:
    """Replace all gradients of a model, taken together as one vector of d numbers, by their private answer, in place.

    Call it between ``loss.backward()`` and ``optimizer.step()``. The step consumes the mechanism's ε, once, for whatever the loss was of: all
    records of the client.

    Raises
    ------
    DesignError
        A parameter without a gradient, or another number of them than the mechanism's dimension; nothing is changed then.
    """
    torch, made = _torch(), _mechanism(mechanism)
    if not isinstance(model, torch.nn.Module):
        raise DesignError.of("model", model, "must be a torch.nn.Module")
    kept = [p for p in model.parameters() if p.requires_grad]
    if not kept or any(p.grad is None for p in kept):
        raise DesignError("the model has a parameter without a gradient: call it after loss.backward()")
    whole = torch.cat([p.grad.detach().reshape(-1).to("cpu", torch.float64) for p in kept])
    hook = gradient_hook(made, clip=clip, rng=rng)
    for p, part in zip(kept, hook(whole).split([p.numel() for p in kept])):
        p.grad = part.reshape(p.shape).to(p.device, p.dtype)
