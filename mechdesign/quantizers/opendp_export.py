"""Certified quantizers as OpenDP measurements (extra ``[opendp]``).

The measurement's function is the exact sampler of the certified law, and its privacy map states the certificate's
loss, rounded up: any two different inputs are at discrete distance 1 and get ε; equal inputs get 0.
"""

from __future__ import annotations

from typing import Any

from mechdesign.errors import DesignError
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.mechanism.quantizer import Quantizer

__all__ = ["quantizer_measurement"]


def quantizer_measurement(mechanism: Quantizer, certificate: QuantizerCertificate) -> Any:
    """Return an ``opendp.mod.Measurement`` from a float to one of the outputs.

    OpenDP calls functions it did not write "honest but curious"; enabling that feature and ``contrib`` is done here,
    as the certificate is the proof those flags ask for.

    Raises
    ------
    DesignError
        OpenDP is not installed, or the certificate does not verify or is of another law.
    """
    try:
        import opendp.prelude as dp
    except ImportError:
        raise DesignError("OpenDP is not installed: pip install 'mechdesign[opendp]'") from None
    certified = mechanism.certified()
    if certified.law != certificate.law or not certificate.verify():
        raise DesignError("the certificate does not prove this mechanism; use result.certify()")
    dp.enable_features("contrib", "honest-but-curious")
    loss = certificate.epsilon_upper

    def release(x: float) -> float:
        return float(certified.sample_exact(x, clip=True))

    def privacy_map(distance: int) -> float:
        return 0.0 if distance == 0 else loss

    return dp.m.make_user_measurement(
        input_domain=dp.atom_domain(T=float, nan=False),
        input_metric=dp.discrete_distance(),
        output_measure=dp.max_divergence(),
        function=release,
        privacy_map=privacy_map,
    )
