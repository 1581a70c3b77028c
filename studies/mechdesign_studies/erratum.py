"""Rows of the table of errata, each checked against what it documents: part of the study `errata`."""

from __future__ import annotations

from collections.abc import Sequence


class Errata:
    """The rows found so far, and the numbers in them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []
        self.values: list[dict[str, object]] = []

    def add(
        self,
        paper: str,
        place: str,
        printed: str,
        true: str,
        computed: str,
        *,
        documented: Sequence[float],
        within: float,
        found: Sequence[float],
    ) -> None:
        """Check what was found against what is documented, and add the row; `true` is filled with what was found."""
        for value, expected in zip(found, documented, strict=True):
            if not abs(value - expected) <= within:
                raise ArithmeticError(
                    f"{paper}, {place}: found {value}, documented {expected} within {within}"
                )
            self.values.append(
                {
                    "row": len(self.rows) + 1,
                    "found": float(value),
                    "documented": expected,
                    "tolerance": within,
                }
            )
        self.rows.append(
            {
                "paper": paper,
                "place": place,
                "printed": printed,
                "true": true.format(*found),
                "how computed": computed,
            }
        )
