"""Tables for papers: what LaTeX cannot set as text becomes mathematics, and everything else is escaped."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.digits import as_latex

SYMBOLS = "αδεℓλρσΔΣ²₂⁻⁹₁≤≥±×∞→−–…‖√"


def written(**columns: list[object]) -> str:
    return as_latex(pd.DataFrame(columns), float_format="%.6g")


def mathematics_is_closed(text: str) -> bool:
    """No special character of LaTeX outside of mathematics, no two powers in a row inside."""
    bare = text.replace(r"\\", "").replace(r"\$", "")
    pieces = bare.split("$")
    inside, outside = pieces[1::2], pieces[::2]
    specials = re.compile(r"(?<!\\)[_^%#~]")
    return len(pieces) % 2 == 1 and all(inside) and not any(specials.search(piece) for piece in outside)


def test_powers_and_indices_run_together() -> None:
    assert "10$^{-19}$" in written(a=["10⁻¹⁹"])
    assert r"$\ell$$_{2}$" in written(a=["ℓ₂"])


@given(st.text(st.sampled_from(SYMBOLS + "ab_%&#${}^~\\ "), max_size=12))
def test_any_text_compiles(text: str) -> None:
    for table in (
        written(a=[text]),
        as_latex(pd.DataFrame({"a": [1.0]}), float_format="%.3g", caption=f"a {text}"),
    ):
        assert table.isascii() and mathematics_is_closed(table), table


def test_a_caption_is_escaped() -> None:
    table = as_latex(pd.DataFrame({"a": [1.0]}), float_format="%.3g", caption="a sample of 2%, C_m equal")
    assert r"\caption{a sample of 2\%, C\_m equal}" in table


def test_a_comparison_says_what_its_ratio_is_to() -> None:
    found = md.compare(md.NumericQuery(), md.PureDP(1.0), mechanisms=["laplace", "staircase"])
    table = found.to_latex()
    assert "ratio to the " + ("proved least" if found.least is not None else "best found") in table
    assert table.isascii() and r"$\varepsilon$ = 1" in table
    assert "ratio to the" in found.to_markdown()


def test_committed_tables_compile() -> None:
    results = Path(__file__).parents[2] / "results"
    for path in (table for kept in results.rglob("contents.json") for table in kept.parent.glob("*.csv")):
        text = as_latex(pd.read_csv(path), float_format="%.6g").replace("é", "e")  # every engine sets it
        assert text.isascii() and mathematics_is_closed(text), path
