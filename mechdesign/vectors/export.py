"""Ways into other programs: a scalar quantizer as a C header of integers, every mechanism as flat JSON or as a PyTorch module.

In PyTorch a vector mechanism is a module, a hook on a tensor's gradient, or applied to all gradients of a model at once. Codes are drawn
exactly, with the operating system's randomness, on the processor; what is handed back lies where the tensor lay, in its type. A step whose
whole gradient goes through one mechanism once consumes its ε once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from mechdesign.errors import DesignError, MissingExtra
from mechdesign.problem.checks import generator, instance, one_of
from mechdesign.quantizers.mechanism.quantizer import CoordinateQuantizer, Quantizer
from mechdesign.typing import Randomness
from mechdesign.vectors.coded import SubsetSelection
from mechdesign.vectors.integer_table import IntegerTable
from mechdesign.vectors.sampled import SampledCoordinates, SampledSigns
from mechdesign.vectors.sphere import SphereQuantizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}", re.ASCII)
_C = """/* {name}: {m} outputs on [{low!r}, {high!r}], written by mechdesign.
 * Local differential privacy: epsilon = {epsilon!r}, exact for these integers. Bias at most {bias:.3g}.
 * One word of a cryptographic generator (getrandom, /dev/urandom) for every number, never used twice.
 * C99, IEEE doubles; no other library. */
#ifndef MECHDESIGN_{upper}_H
#define MECHDESIGN_{upper}_H
#include <stdint.h>

#define {upper}_SEGMENTS {segments}
#define {upper}_OUTPUTS {m}

/* The eight random bytes of one number: getrandom(&word, sizeof word, 0). A number of another width is no word. */
typedef struct {{ unsigned char bytes[8]; }} {name}_word;

static const double {name}_knots[{knot_count}] = {{{knots}}};
static const double {name}_slopes[{segments}] = {{{slopes}}};
static const double {name}_bins[{m}] = {{{bins}}};
static const uint32_t {name}_keep[{cells}] = {{{keep}}};
static const uint16_t {name}_alias[{cells}] = {{{alias}}};

/* The number of the output for x, or -1 where x is not in the input range (or not a number). */
static inline int {name}_encode(double x, {name}_word word)
{{
    const unsigned char *b = word.bytes;
    const uint32_t lower = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    const uint32_t upper = b[4] | (uint32_t)b[5] << 8 | (uint32_t)b[6] << 16 | (uint32_t)b[7] << 24;
    int k = 0;
    if (!(x >= {name}_knots[0] && x <= {name}_knots[{segments}])) return -1;
    while (k < {segments} - 1 && x >= {name}_knots[k + 1]) k++;
    const double t = (x - {name}_knots[k]) * {name}_slopes[k];
    const uint32_t end = (double)lower < t;
    const uint32_t column = upper >> {shift}, rest = upper & {mask}u;
    const uint32_t cell = ((2u * (uint32_t)k + end) << {bits}) | column;
    return (int)(rest < {name}_keep[cell] ? column : {name}_alias[cell]);
}}

/* The output of that number; an unbiased estimate of x. 0 for a number that is none. */
static inline double {name}_decode(int code)
{{
    return code >= 0 && code < {m} ? {name}_bins[code] : 0.0;
}}
#endif
"""


def c_header(table: IntegerTable, *, name: str = "quantizer") -> str:
    """Return a C header with the integer tables and the functions that encode and decode.

    ``NAME_encode(x, word)`` gives what ``table.draw(x, word)`` gives, bit for bit: a ``NAME_word`` is eight random bytes, the
    least significant of the 64-bit word first.

    Parameters
    ----------
    table : IntegerTable
        Of a quantizer: ``IntegerTable.of(quantizer, epsilon=…)``.
    name : str
        What its functions and tables begin with.

    Examples
    --------
    >>> import mechdesign as md
    >>> table = IntegerTable.of(md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)))
    >>> print(c_header(table, name="gradient").splitlines()[5])
    #define MECHDESIGN_GRADIENT_H
    """
    if not isinstance(table, IntegerTable):
        wanted = "must be an IntegerTable: IntegerTable.of(quantizer) of a quantizer of numbers; flat_json exports mechanisms of whole vectors"
        raise DesignError.of("table", table, wanted)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        allowed = "must be a C identifier of at most 41 letters, digits and underscores"
        raise DesignError.of("name", name, allowed)
    keep, alias = table.alias
    bits = table.column_bits
    return _C.format(
        name=name,
        upper=name.upper(),
        m=len(table.bins),
        low=table.knots_range[0],
        high=table.knots_range[1],
        epsilon=table.privacy_loss(),
        bias=table.bias() * 1.01,
        segments=len(table.slopes),
        knot_count=len(table.knots),
        cells=keep.size,
        knots=_listed([float(v).hex() for v in table.knots]),
        slopes=_listed([float(v).hex() for v in table.slopes]),
        bins=_listed([float(v).hex() for v in table.bins]),
        keep=_listed([f"{v}u" for v in keep.ravel().tolist()]),
        alias=_listed([str(v) for v in alias.ravel().tolist()]),
        bits=bits,
        shift=32 - bits,
        mask=(1 << (32 - bits)) - 1,
    )


def _listed(values: Sequence[str]) -> str:
    lines = [", ".join(values[a : a + 8]) for a in range(0, len(values), 8)]
    return ("\n    " if len(lines) > 1 else "") + ",\n    ".join(lines)


def flat_json(mechanism: object) -> str:
    """Return what a device needs of a mechanism as one flat JSON object: names to numbers, texts and lists of them.

    Integers beyond 2⁵³ are texts of digits. A certified result keeps its proof by ``result.save``; this is for programs that
    draw and decode.

    Parameters
    ----------
    mechanism : SphereQuantizer, SampledSigns, SampledCoordinates, IntegerTable, Quantizer or CoordinateQuantizer

    Examples
    --------
    >>> import mechdesign as md
    >>> sorted(json.loads(flat_json(md.SphereQuantizer(10, 3, md.PureDP(1.0)))))[:4]
    ['bits', 'dimension', 'epsilon', 'format']
    """
    if isinstance(mechanism, SphereQuantizer):
        body = {
            **_fields(mechanism, "dimension", "bits", "radius", "inputs", "rotation"),
            "working_dimension": mechanism.working,
            "vertices": mechanism.outputs,
            "stretch": mechanism.factor * mechanism.radius,
            **_near(mechanism),
        }
    elif isinstance(mechanism, SampledSigns):
        own = _fields(mechanism, "dimension", "bits", "flips", "stretch", "radius", "inputs")
        body = {**own, **_near(mechanism)}
    elif isinstance(mechanism, SampledCoordinates):
        stretch = mechanism.radius * mechanism.dimension / mechanism.slots
        own = _fields(mechanism, "dimension", "count", "radius", "inputs")
        body = {**own, "stretch": stretch, **_rows(mechanism.one)}
    elif isinstance(mechanism, IntegerTable):
        keep, alias = mechanism.alias
        lists = {"knots": mechanism.knots.tolist(), "bins": mechanism.bins.tolist()}
        cells = {"keep": keep.ravel().tolist(), "alias": alias.ravel().tolist()}
        body = {**_fields(mechanism, "column_bits"), **lists, **cells}
    elif isinstance(mechanism, CoordinateQuantizer):
        body = {**_fields(mechanism, "dimension", "scale"), **_rows(mechanism.coordinate)}
    elif isinstance(mechanism, Quantizer):
        body = {**_fields(mechanism), **_rows(mechanism)}
    else:
        wanted = "must be a SphereQuantizer, SampledSigns, SampledCoordinates, IntegerTable, Quantizer or CoordinateQuantizer"
        raise DesignError.of("mechanism", mechanism, wanted)
    return json.dumps({"format": "mechdesign-flat", "version": 1, **body}, indent=1, allow_nan=False) + "\n"


def _fields(mechanism: Deployed, *names: str) -> Flat:
    """The kind, the budget and attributes of a mechanism."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(mechanism).__name__).lower()
    budget = mechanism.privacy.epsilon if hasattr(mechanism, "privacy") else mechanism.privacy_loss()
    return {"kind": kind, "epsilon": budget, **{name: getattr(mechanism, name) for name in names}}


def _near(mechanism: SubsetSelection) -> Flat:
    """The number of near codes, and the exact weights of all of them and of all others."""
    above, below = mechanism.power.numerator, mechanism.power.denominator
    return {
        "near": mechanism.near,
        "weight_of_all_near": str(mechanism.near * above),
        "weight_of_all_others": str((mechanism.outputs - mechanism.near) * below),
    }


def _rows(quantizer: Quantizer) -> Flat:
    """The exact weights of every row, one after the other, over each row's sum."""
    law = quantizer.certified().law
    assert law is not None
    rows = [law.weights(k, end)[0] for k in range(len(law.knots) - 1) for end in (0, 1)]
    return {
        "knots": [float(x) for x in law.knots],
        "bins": [float(b) for b in law.bins],
        "weights": [str(w) for row in rows for w in row],
    }


Mechanism = SphereQuantizer | SampledSigns | SampledCoordinates
Deployed = Mechanism | IntegerTable | Quantizer | CoordinateQuantizer
Flat = dict[str, object]


def _torch() -> ModuleType:
    try:
        return import_module("torch")
    except ImportError:
        raise MissingExtra.of("torch", "a vector mechanism on tensors", "PyTorch") from None


def _answering(mechanism: Mechanism, clip: bool, rng: Randomness) -> Callable[[Tensor], Tensor]:
    """Return what answers a tensor (..., d) privately, where it lies and in its type."""
    instance("mechanism", mechanism, SphereQuantizer, SampledSigns, SampledCoordinates)
    one_of("clip", clip, (True, False))
    torch = _torch()
    draw = mechanism.release if rng is None else partial(mechanism.sample, rng=generator(rng))

    def answer(x: Tensor) -> Tensor:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            raise DesignError.of("x", type(x).__name__, "must be a tensor of floating-point numbers")
        if x.device.type == "meta" or x.layout is not torch.strided:
            raise DesignError.of("x", f"{x.layout} tensor on {x.device}", "must be a dense tensor with data")
        plain = x.detach().to("cpu", torch.float64).numpy()
        return torch.from_numpy(draw(plain, clip=clip)).to(x.device, x.dtype)

    return answer


def torch_module(mechanism: Mechanism, *, clip: bool = True, rng: Randomness = None) -> Module:
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
    answer = _answering(mechanism, clip, rng)

    class VectorModule(_torch().nn.Module):  # type: ignore[misc]
        """Answers vectors privately; the gradient passes as if they were unchanged."""

        def forward(self, x: Tensor) -> Tensor:
            return x + (answer(x) - x).detach()

        def extra_repr(self) -> str:
            return repr(mechanism)

    made: Module = VectorModule()
    return made


def gradient_hook(
    mechanism: Mechanism, *, clip: bool = True, rng: Randomness = None
) -> Callable[[Tensor], Tensor]:
    """Return a hook for ``tensor.register_hook``: the gradient, as one vector of d numbers, is replaced by its private answer."""
    answer = _answering(mechanism, clip, rng)

    def hook(gradient: Tensor) -> Tensor:
        if gradient.numel() != mechanism.dimension:
            wanted = f"the mechanism's dimension is {mechanism.dimension}"
            raise DesignError(f"a gradient of {gradient.numel()} numbers: {wanted}")
        return answer(gradient.reshape(-1)).reshape(gradient.shape)

    return hook


def privatize_gradients(
    model: object, mechanism: Mechanism, *, clip: bool = True, rng: Randomness = None
) -> None:
    """Replace all gradients of a model, taken together as one vector of d numbers, by their private answer, in place.

    Call it between ``loss.backward()`` and ``optimizer.step()``. The step consumes the mechanism's ε, once, for whatever the loss was of: all
    records of the client.

    Raises
    ------
    DesignError
        A parameter without a gradient, or another number of them than the mechanism's dimension; nothing is changed then.
    """
    torch, hook = _torch(), gradient_hook(mechanism, clip=clip, rng=rng)
    if not isinstance(model, torch.nn.Module):
        raise DesignError.of("model", model, "must be a torch.nn.Module")
    kept = [p for p in model.parameters() if p.requires_grad]
    if not kept or any(p.grad is None for p in kept):
        raise DesignError("the model has a parameter without a gradient: call it after loss.backward()")
    whole = torch.cat([p.grad.detach().reshape(-1).to("cpu", torch.float64) for p in kept])
    for p, part in zip(kept, hook(whole).split([p.numel() for p in kept])):
        p.grad = part.reshape(p.shape).to(p.device, p.dtype)
