"""Certified quantizers as OpenDP measurements (extra ``[opendp]``).

The measurement's function is the exact sampler of the certified law, and its privacy map states that law's loss,
rounded up: any two different inputs are at discrete distance 1 and get ε; equal inputs get 0.
"""

from __future__ import annotations

from typing import Any

from mechdesign.errors import MissingExtra

__all__ = ["quantizer_measurement"]


def quantizer_measurement(mechanism: Any) -> Any:
    """Return an ``opendp.mod.Measurement`` of a `Quantizer`, from a float to one of the outputs.

    OpenDP calls functions it did not write "honest but curious"; enabling that feature and ``contrib`` is done here,
    as the exact law is the proof those flags ask for.

    Raises
    ------
    MissingExtra
        OpenDP is not installed.
    InfeasibleError
        A mechanism in floats that no exact law is next to.
    """
    try:
        import opendp.prelude as dp
    except ImportError:
        raise MissingExtra.of("opendp", "an OpenDP measurement") from None
    certified = mechanism.certified()
    dp.enable_features("contrib", "honest-but-curious")
    loss = certified.privacy_loss()
    return dp.m.make_user_measurement(
        input_domain=dp.atom_domain(T=float, nan=False),
        input_metric=dp.discrete_distance(),
        output_measure=dp.max_divergence(),
        function=lambda x: float(certified.release(x, clip=True)),
        privacy_map=lambda distance: loss if distance else 0.0,
    )
