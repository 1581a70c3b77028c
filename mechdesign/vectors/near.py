"""Codes of which k are near the input: one of them is drawn with E times the probability of another, in exact integers."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from functools import cached_property

import numpy as np

from mechdesign.evidence.sampling import IntegerWeights, uniform_integers
from mechdesign.typing import Indices
from mechdesign.vectors.coded import CodedMechanism

__all__ = ["NearResponse"]


class NearResponse(CodedMechanism):
    """A place in an order of all codes that puts the near ones first, whichever they are: that is what is private."""

    @property
    @abstractmethod
    def power(self) -> Fraction:
        """E, the rational lower bound of e^ε that every probability is made of."""

    bits: int
    """b, of a code."""

    @property
    def outputs(self) -> int:
        """M = 2^b, the number of codes."""
        return 1 << self.bits

    @property
    def levels(self) -> int:
        return self.outputs

    @property
    def slots(self) -> int:
        return 1

    @property
    @abstractmethod
    def near(self) -> int:
        """k, how many are near."""

    @cached_property
    def probabilities(self) -> tuple[Fraction, Fraction]:
        """The probability of each near code and of each other one."""
        total = self.near * self.power + self.outputs - self.near
        return self.power / total, 1 / total

    @cached_property
    def _choice(self) -> IntegerWeights:
        """Near or not: integers in the ratio kE to M − k."""
        above, below = self.power.numerator, self.power.denominator
        return IntegerWeights([self.near * above, (self.outputs - self.near) * below])

    def _exact_ranks(self, size: int) -> Indices:
        other = self._choice.draw(size).astype(bool)
        near = uniform_integers(self.near, size)
        return np.where(other, self.near + uniform_integers(self.outputs - self.near, size), near)

    def _simulated_ranks(self, source: np.random.Generator, size: int) -> Indices:
        first = source.integers(0, self.near, size)
        other = source.integers(self.near, self.outputs, size)
        return np.where(source.random(size) < self.near * float(self.probabilities[0]), first, other)
