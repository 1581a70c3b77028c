"""Check a result file of mechdesign with Python's standard library alone.

    python -m mechdesign.verifier result.json

Every claim is printed as *proved* (exact or outward-rounded arithmetic), *recomputed* (doubles) or *claimed* (not checked
here). Exit code 0: all that is checked holds; 1: something does not, or the file is damaged; 2: this kind is not covered.
Covered are calibrated noise, quantizers (pure local privacy, and metric privacy with the absolute or the squared metric), metric-private
channels, optimal lattice noise and noise allocations. Nothing is shared with the package: it is a second opinion. Fields
of files: docs/format.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from mechdesign.verifier.allocation import allocation
from mechdesign.verifier.biased_selection import biased_selection
from mechdesign.verifier.bound_class import standing
from mechdesign.verifier.calibration import calibration
from mechdesign.verifier.channel import channel
from mechdesign.verifier.covariance import correlated, counts
from mechdesign.verifier.knorm import knorm
from mechdesign.verifier.lattice_noise import lattice_noise
from mechdesign.verifier.mechanisms import MECHANISMS
from mechdesign.verifier.quantizer import quantizer
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, TooLarge, read
from mechdesign.verifier.strategy import strategy
from mechdesign.verifier.vectors import vectors

CHECKS: dict[str, Callable[[Json, Account], None]] = {
    "metric-quantizer": quantizer,
    "optimal-quantizer": quantizer,
}
CHECKS |= dict.fromkeys(("optm", "optm-search", "rqm", "erm", "mvu"), quantizer)
CHECKS |= {
    "metric-channel": channel,
    "optimal-noise": lattice_noise,
    "noise-allocation": allocation,
    "calibration": calibration,
    "correlated-gaussian": correlated,
    "counts-gaussian": counts,
    "matrix-mechanism": strategy,
    "knorm": knorm,
    "vector-design": vectors,
    "biased-selection": biased_selection,
}


def verify(text: str) -> Account:
    """The account of a file; raises NotCovered, or Refused for what cannot be a result."""
    try:
        result, account = read(text), Account(len(text))
        if result[""] in MECHANISMS:
            MECHANISMS[result[""]](result, account)
            return account
        kind = result["design"][""] if result[""] == "result" else result[""]
        if kind not in CHECKS:
            raise NotCovered(f"results of kind {kind}")
        if kind == result[""]:
            raise Refused(f"a design ({kind}) without a result: nothing is claimed that could be checked")
        account.agrees("a proof is there", bool(result["proofs"]))
        if result["proofs"]:
            CHECKS[kind](result, account)
        standing(result, account)
    except (NotCovered, Refused):
        raise
    except Exception as error:
        raise Refused(f"malformed: {type(error).__name__}: {error}"[:300]) from None
    return account


def main(words: list[str]) -> int:
    if len(words) != 1:
        print("usage: python -m mechdesign.verifier result.json", file=sys.stderr)
        return 1
    try:
        with open(words[0], encoding="utf-8") as file:
            account = verify(file.read(2**26 + 1))
    except NotCovered as error:
        print(error if isinstance(error, TooLarge) else f"not covered: {error}")
        return 2
    except (OSError, ValueError, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for claim, how, holds in account.rows:
        print(f"{'ok ' if holds else 'NO '} {how:10} {claim}")
    print(account.summary())
    return 0 if all(holds for *_, holds in account.rows) else 1
