"""Clients of vector mechanisms in C: what encodes a vector and writes the message that docs/wire.md describes.

Doubles with + − × ÷ √ in the order stated there, integers for everything that is private, and random words from the caller's source: C and
Python make the same message of the same words. Privacy needs nothing of the doubles. One probability is not the exact fraction: how likely
all near codes are is cut off after 256 binary digits, which makes E smaller, by less than 2⁻²⁴⁰ of itself, and keeps the budget.
"""

from __future__ import annotations

from fractions import Fraction
from importlib import resources
from typing import Any

from mechdesign.errors import DesignError
from mechdesign.vectors.coded import CodedMechanism, SubsetSelection
from mechdesign.vectors.sampled import SampledCoordinates, SampledSigns, SampledSubset

_LIMBS = 4

_HEAD = """/* {name}: one vector of {dimension} numbers a message, written by mechdesign.
 * Local differential privacy of the whole vector: epsilon = {epsilon!r}, whatever the doubles do.
 * C99 with IEEE doubles, -ffp-contract=off, and the C library's sqrt (-lm). */
#ifndef MECHDESIGN_NAME_H
#define MECHDESIGN_NAME_H
#include <math.h>
#include <stdint.h>
"""


def template(*names: str) -> str:
    """The templates of these names, in ``clients/c``, one after the other: C in which every name is still to be given."""
    folder = resources.files("mechdesign.vectors") / "clients" / "c"
    return "".join("\n" + (folder / f"{name}.h").read_text(encoding="utf-8") for name in names)


def prefixed(code: str, name: str) -> str:
    """Return C with every name_ and NAME_ replaced."""
    return code.replace("NAME_", f"{name.upper()}_").replace("name_", f"{name}_")


def message_constants(mechanism: CodedMechanism) -> dict[str, object]:
    """What the template ``message`` is made with."""
    size = f"(32 + ((size_t)(vectors) * {mechanism.vector_bits} + 7) / 8)"
    return {
        "FINGERPRINT": "{" + ", ".join(map(str, mechanism.fingerprint)) + "}",
        "CODES": mechanism.slots,
        "CODE_BITS": mechanism.code_bits,
        "BYTES(vectors)": size,
    }


def defined(constants: dict[str, object]) -> str:
    """As C's definitions."""
    return "".join(f"#define NAME_{key} {value}\n" for key, value in constants.items())


def _digits(p: Fraction) -> str:
    found: list[str] = []
    while p and len(found) < _LIMBS:
        whole, p = divmod(p * (1 << 64), 1)
        found.append(f"UINT64_C({whole})")
    return "{" + ", ".join(found) + "}"


def encoder(mechanism: Any, name: str) -> str:
    """The C header of a mechanism of whole vectors: of those that `c_header` takes."""
    constants = {
        "DIMENSION": mechanism.dimension,
        "RADIUS": mechanism.radius.hex(),
        "BOX": int(mechanism.inputs == "box"),
        "SPHERE": int(mechanism.inputs == "sphere"),
        "CUT": int(isinstance(mechanism, SampledSubset)),
        **message_constants(mechanism),
    }
    own = ["places"]
    if isinstance(mechanism, SubsetSelection):
        near = _digits(mechanism.near * mechanism.probabilities[0])
        constants |= {"OUTPUTS": mechanism.outputs, "NEAR": mechanism.near, "NEAR_DIGITS": near}
    if isinstance(mechanism, SampledSigns):
        constants |= {"SENT": mechanism.sent}
        own += ["sampled", "signs"]
    elif isinstance(mechanism, SampledCoordinates):
        law = mechanism.one.law
        if not mechanism.one_segment or mechanism.levels != 2 or law is None:
            wanted = "must be of two outputs for a client in C: export its IntegerTable"
            raise DesignError.of("coordinate", mechanism.coordinate, wanted)
        constants |= {"SENT": mechanism.sent}
        constants |= {f"{key}_DIGITS": _digits(law.row(0, end)[0]) for end, key in enumerate(("DOWN", "UP"))}
        own = ["sampled", "coordinates"]
    else:
        working, fast = mechanism.working, getattr(mechanism, "rotation", None)
        if fast == "exact":
            wanted = "must be 'fast' for a client in C: an exact rotation takes a QR decomposition"
            raise DesignError.of("rotation", fast, wanted)
        constants |= {"WORKING": working, "POWER": 1 << (working.bit_length() - 1)}
        own += ["nearest", "sphere" if fast else "directions"]
    head = _HEAD.format(name=name, dimension=mechanism.dimension, epsilon=mechanism.privacy_loss())
    return prefixed(head + defined(constants) + template("words", "message", "draws", *own, "encode"), name)
