"""Print numbers to their significant digits, rounded to the side on which a bound stays true; tables on a terminal and in LaTeX."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line loads this module, and its help needs neither pandas nor tables
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    from mechdesign.typing import FrozenLaw


def shown(value: object, digits: int = 6) -> str:
    """Return the text of a table's cell: numbers to `digits` significant digits, yes and no, a dash for None and NaN.

    Examples
    --------
    >>> shown(0.1 + 0.2), shown(True), shown(None), shown(float("nan")), shown(1000000), shown((0.1 + 0.2, 1.0))
    ('0.3', 'yes', '–', '–', '1000000', '(0.3, 1)')
    """
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real) and not isinstance(value, Integral):
        number = float(value)
        return "–" if math.isnan(number) else f"{number + 0.0:.{digits}g}"  # no "-0"
    if isinstance(value, tuple) and value and all(isinstance(part, float) for part in value):
        return f"({', '.join(shown(part, digits) for part in value)})"
    return "–" if value is None else str(value)


def at_most(value: float, digits: int = 6) -> str:
    """Return the number rounded up to `digits` significant digits: the print stays an upper bound.

    Examples
    --------
    >>> at_most(0.99999999), at_most(2.0000000001, 4), at_most(1.5)
    ('1', '2.001', '1.5')
    """
    return _rounded(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 6) -> str:
    """Return the number rounded down to `digits` significant digits.

    Examples
    --------
    >>> at_least(0.99999999), at_least(1.70048731, 4), at_least(-1.00001, 3)
    ('0.999999', '1.7', '-1.01')
    """
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, direction: str) -> str:
    if not math.isfinite(value):
        return str(float(value))
    digits = min(digits, 15)  # as many as a double keeps
    rounded = Context(prec=digits, rounding=direction).create_decimal(Decimal(float(value)))
    text = f"{float(rounded):.{digits}g}"
    return text if Decimal(text) == rounded else str(rounded)  # doubles of fewer digits are on either side


def meaningful(gap: float | None, most: int = 9) -> int:
    """Return the digits to print of a value that is known to within a relative `gap`: one more than agree.

    Examples
    --------
    >>> meaningful(None), meaningful(0.02), meaningful(1e-6), meaningful(0.0)
    (6, 4, 8, 9)
    """
    if gap is None or not math.isfinite(gap):
        return min(6, most)
    return most if gap <= 0 else min(most, max(4, 2 - math.floor(math.log10(gap))))


def law_shown(law: FrozenLaw) -> str:
    """Return a frozen law of SciPy as its constructor's call.

    Examples
    --------
    >>> from scipy import stats
    >>> law_shown(stats.norm(0.5, scale=0.1))
    'norm(0.5, scale = 0.1)'
    """
    given = [*map(shown, law.args), *(f"{key} = {shown(value)}" for key, value in law.kwds.items())]
    return f"{law.dist.name}({', '.join(given)})"


def fields_shown(value: Any) -> str:
    """Return the repr of a dataclass some of whose fields are frozen laws."""
    held = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    said = (f"{name}={law_shown(v) if hasattr(v, 'dist') else repr(v)}" for name, v in held)
    return f"{type(value).__name__}({', '.join(said)})"


def gap_words(gap: float) -> str:
    """Return a gap (v − b)/v in per cent; gaps below 1e-9 are rounding.

    Examples
    --------
    >>> gap_words(0.0), gap_words(1e-12), gap_words(0.03125), gap_words(0.887), gap_words(1.0)
    ('0%', 'below 1e-07%', '3.2%', '88.8%', '100%')
    """
    return "below 1e-07%" if 0 < gap < 1e-9 else f"{at_most(100 * gap, 2 if gap < 0.1 else 3)}%"


def within(gap: float) -> str:
    """Say how far a value is from a lower bound below half of it; "" if the bound is nearer.

    Examples
    --------
    >>> within(0.3), within(0.887), within(1.0)
    ('', 'the value is within 8.85 × the lower bound', '')
    """
    return f"the value is within {at_most(1 / (1 - gap), 3)} × the lower bound" if 0.5 < gap < 1 else ""


WIDTH = 100
"""Columns if there is no terminal."""


def width() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


def folded(text: str, hang: int = 2) -> str:
    """Fold lines at spaces to the terminal's width, with continuations indented by `hang`; an index such as ``P[x, y]`` stays whole.

    Examples
    --------
    >>> print(folded(f"note: P[0, {'1' * 60}, 2] is shown, and what does not fit on a line is on the next, by two spaces further in"))
    note: P[0, 111111111111111111111111111111111111111111111111111111111111, 2] is shown, and what does
      not fit on a line is on the next, by two spaces further in
    """
    found: list[str] = []
    for line in text.splitlines():
        margin = " " * (len(line) - len(line.lstrip()) + hang)
        whole = re.sub(r"\[[^][]{,30}\]", lambda index: index[0].replace(" ", "\u00a0"), line)
        lines = textwrap.wrap(whole, width(), subsequent_indent=margin, break_on_hyphens=False)
        found += (part.replace("\u00a0", " ") for part in lines or [""])
    return "\n".join(found)


_COMMANDS = """α alpha β beta γ gamma δ delta ε varepsilon ζ zeta η eta θ theta κ kappa λ lambda μ mu ν nu ξ xi π pi
ρ rho σ sigma τ tau φ varphi χ chi ψ psi ω omega ϑ vartheta ϱ varrho Γ Gamma Δ Delta Λ Lambda Σ Sigma Φ Phi Ω Omega
ℓ ell ≤ le ≥ ge ± pm × times · cdot ∞ infty → to ∝ propto ‖ | √ surd ∫ int ⌊ lfloor ⌋ rfloor"""
_SYMBOLS = str.maketrans(
    {symbol: rf"$\{name}$" for symbol, name in re.findall(r"(\S) (\S+)", _COMMANDS)}
    | {"−": "$-$", "–": "--", "…": r"\ldots{}", "½": r"$\frac12$", "ℤ": r"$\mathbf{Z}$"}
)
_SPECIAL = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"~": r"\textasciitilde ", "^": r"\textasciicircum ", "\\": r"\textbackslash "}
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ", "0123456789+-T")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊ᵢ", "0123456789+i")


def as_latex(frame: pd.DataFrame, *, float_format: str, caption: str | None = None) -> str:
    r"""Return a table in LaTeX (``booktabs``): text escaped, Greek letters, signs, powers and indices as mathematics.

    Parameters
    ----------
    frame : DataFrame
    float_format : str
        Such as ``"%.6g"``.
    caption : str, optional
        If given, the tabular is put into a table.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"ℓ₂": ["ε = 1, δ = 10⁻⁹"]})
    >>> print(as_latex(frame, float_format="%.6g").splitlines()[4])
    $\varepsilon$ = 1, $\delta$ = 10$^{-9}$ \\
    """
    title = None if caption is None else caption.translate(_SPECIAL)
    return _mathematics(frame.to_latex(index=False, escape=True, float_format=float_format, caption=title))


def _mathematics(text: str) -> str:
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ]+", lambda run: f"$^{{{run[0].translate(_RAISED)}}}$", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉₊ᵢ]+", lambda run: f"$_{{{run[0].translate(_LOWERED)}}}$", text)
    return text.translate(_SYMBOLS)


_NARROW = 80
"""Columns of a table if there is no terminal."""


def console(width: int = _NARROW) -> Console:
    """Return a console on standard output, `width` columns wide if it is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else width, soft_wrap=False)


def tabulated(
    columns: Iterable[object],
    rows: Iterable[Iterable[object]],
    title: str | None = None,
    *,
    digits: int = 4,
) -> Table:
    """Return a table that folds texts and never cuts numbers; markup in texts, which may come from a stranger's file, is shown as it is."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [[shown(value, digits) for value in row] for row in rows]
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )
    for k, name in enumerate(map(str, columns)):
        numeric = all(_number(row[k]) for row in cells)
        whole = numeric or (k == 0 and all(len(row[0]) <= 20 for row in cells))
        side = "right" if numeric and cells else "left"
        head = "\n".join(name.split()) if numeric else name
        table.add_column(head, justify=side, no_wrap=whole, overflow="fold")  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def show(columns: Iterable[object], rows: Iterable[Iterable[object]], title: str | None = None) -> None:
    """Print a table."""
    console().print(tabulated(columns, rows, title))


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "–"
    return True
