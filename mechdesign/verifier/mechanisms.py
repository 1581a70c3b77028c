"""Mechanisms of one number that are saved without a result: what they lose, computed from their laws.

No budget is stated that this could be compared with, so the loss itself is printed, rounded up.

*Tables, selections and block fills* have rows that are affine between knots (`mechdesign.verifier.quantizer_laws`), and an *integer table*
draws from the row at the start or from that at the end of a segment. So every probability of an output lies between the smallest and the
largest of its column: the largest quotient of the two is e^ε. Where it is infinite, Σ_i [p(x, i) − e^ε p(x', i)]₊ is convex in both rows, and
largest at two knots: δ at ε = 1. *A vector of d numbers*, each through one table, loses d ε. *Biased selections*:
`mechdesign.verifier.biased_selection`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from mechdesign.verifier import noise_alone, user_level
from mechdesign.verifier.biased_selection import extremes, whole_weights
from mechdesign.verifier.channel import clustered_response, hadamard_response
from mechdesign.verifier.channel import table as channel
from mechdesign.verifier.quantizer import (
    increase,
    largest_bias,
    largest_excess,
    selection_fits,
    table_fits,
    whole,
)
from mechdesign.verifier.quantizer_laws import LAWS, Segments, segments_of
from mechdesign.verifier.reading import Account, Json, NothingToCheck, Refused, above, log_above
from mechdesign.verifier.vectors import mechanism as vectors

WORD = 1 << 32


def quantizer(law: Json, account: Account, numbers: int = 1) -> None:
    if law["law"] is None:
        raise NothingToCheck("a quantizer of doubles, which is not released")
    segments = table(law["law"], account, numbers)
    shown = table_fits(segments, law["law"]["bins"], law) and selection_fits(law)
    account.agrees("the table shown is the law", shown)


def table(law: Json, account: Account, numbers: int = 1) -> Segments:
    """Bias and privacy of an exact law."""
    segments = segments_of(law, account)
    stated(segments, law["bins"], numbers, account)
    return segments


def stated(law: Segments, bins: list[Fraction], numbers: int, account: Account) -> None:
    account.takes(8 * sum(map(len, law.rows)), law.common.bit_length())
    account.agrees("outputs and knots increase", increase(law, bins))
    account.agrees("rows sum to 1", whole(law, bins))
    account.agrees("no probability is negative", min(map(min, law.rows)) >= 0)
    if not all(holds for *_, holds in account.rows):
        return
    account.proved(f"bias at most {above(largest_bias(law, bins))!r} a number", True)
    columns = [column for column in zip(*law.rows) if max(column)]
    if min(map(min, columns)) > 0:
        ratio = max(Fraction(max(column), min(column)) for column in columns)
        account.proved(f"privacy loss at most {above(numbers * Fraction(log_above(ratio)))!r}", True)
    else:
        account.proved("the law does not jump between its segments", law.continuous)
        delta = numbers * largest_excess(law, Fraction(1), account) / law.common
        account.proved(f"delta at most {above(delta)!r} at epsilon = {numbers}", law.continuous)


def exact_law(law: Json, account: Account) -> None:
    table(law, account)


def coordinates(law: Json, account: Account) -> None:
    """The same quantizer for every number of a vector."""
    if law["dimension"] < 1 or not 0 < law["scale"] < math.inf:
        raise Refused("vectors of no numbers, or a scale that is none")
    quantizer(law["coordinate"], account, law["dimension"])


def integer_table(law: Json, account: Account) -> None:
    knots, bins = ([Fraction(v) for v in law[name]] for name in ("knots", "bins"))
    if len(knots) < 2 or len(law["counts"]) != 2 * len(knots) - 2 or len(bins) < 2:
        raise Refused("counts of other segments than those between the knots")
    stated(Segments(knots, law["counts"], WORD), bins, 1, account)


def selection(law: Json, account: Account) -> None:
    bins = law["bins"]
    account.agrees("outputs increase", len(bins) > 1 and all(a < b for a, b in pairwise(bins)))
    for side in ("left", "right"):
        whole_weights(law[side], len(bins), account)
    account.agrees("selection probabilities are laws", True)
    account.claimed("privacy: a selection states no range of inputs")


def biased_quantizer(law: Json, account: Account) -> None:
    choice, beta, (lower, upper) = law["selection"], law["beta"], law["input_range"]
    bins, m = choice["bins"], len(choice["bins"])
    account.agrees("outputs increase", m > 1 and all(a < b for a, b in pairwise(bins)))
    account.agrees("outputs are about the inputs", bins[0] <= lower < upper <= bins[-1])
    if not 0 <= beta < math.inf:
        raise Refused("a sharpness that is none")
    if not all(holds for *_, holds in account.rows):
        return
    left, right = (whole_weights(choice[side], m, account) for side in ("left", "right"))
    knots = [lower, *[b for b in bins if lower < b < upper], upper]
    account.takes(20 * len(knots) * m**2, 1000)
    parts = [(low, high) for low, high in zip(*extremes(bins, left, right, beta, knots)) if high]
    account.proved("no output rules an input out", min(low for low, _ in parts) > 0)
    if all(low > 0 for low, _ in parts):
        loss = log_above(max(high / low for low, high in parts))
        account.proved(f"privacy loss at most {loss!r}", True)


def vector_mechanism(law: Json, account: Account) -> None:
    vectors(law, account)


MECHANISMS: dict[str, Callable[[Json, Account], None]] = {
    "biased-quantizer": biased_quantizer,
    "channel": channel,
    "clustered-response": clustered_response,
    "hadamard-response": hadamard_response,
    "integer-table": integer_table,
    "quantizer": quantizer,
    "selection": selection,
    "vector-quantizer": coordinates,
    **dict.fromkeys(LAWS, exact_law),
    **dict.fromkeys(
        ("sphere-quantizer", "sampled-signs", "sampled-coordinates", "priv-unit"), vector_mechanism
    ),
    **noise_alone.MECHANISMS,
    **user_level.MECHANISMS,
}
