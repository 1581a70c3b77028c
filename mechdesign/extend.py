"""What the author of a mechanism imports: the spine, proofs, checks, exact arithmetic, exact draws, files and comparisons.

The guide *Write a design* shows a whole mechanism that is made of these.
"""

from __future__ import annotations

from mechdesign.choose.candidates import register
from mechdesign.evidence.exact import exp_lower, exp_upper, round_down, round_up
from mechdesign.evidence.proofs import (
    CLAIMED,
    INDEPENDENT_NOISE,
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    MechanismClass,
    Proof,
    every,
    family,
    menu,
)
from mechdesign.evidence.results import AUDIT_COLUMNS, Accuracy, Result, SolveReport
from mechdesign.evidence.sampling import IntegerWeights, exponential_coins, geometric, uniform_integers
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import figure
from mechdesign.problem.checks import (
    DOWN,
    UP,
    Checked,
    answers,
    field,
    instance,
    integer,
    non_negative,
    one_of,
    positive,
    probability,
)
from mechdesign.problem.sensitivity import Protection
from mechdesign.problem.spine import Bound, Clock, Design, Law, ModelledDesign
from mechdesign.problem.words import Description

__all__ = [
    "AUDIT_COLUMNS",
    "CLAIMED",
    "DOWN",
    "INDEPENDENT_NOISE",
    "PROVED",
    "RECOMPUTED",
    "UP",
    "Accuracy",
    "Bound",
    "Certificate",
    "Checked",
    "Claim",
    "Clock",
    "Description",
    "Design",
    "IntegerWeights",
    "Law",
    "MechanismClass",
    "ModelledDesign",
    "Proof",
    "Protection",
    "Result",
    "SolveReport",
    "answers",
    "every",
    "exp_lower",
    "exp_upper",
    "exponential_coins",
    "family",
    "field",
    "figure",
    "geometric",
    "instance",
    "integer",
    "menu",
    "non_negative",
    "one_of",
    "positive",
    "probability",
    "register",
    "round_down",
    "round_up",
    "serializable",
    "uniform_integers",
]
