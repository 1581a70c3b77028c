"""Tables in LaTeX that compile with any engine: the field's symbols as mathematics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line loads this module, and its help needs no pandas
    import pandas as pd

__all__ = ["as_latex"]

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
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊", "0123456789+")


def as_latex(frame: pd.DataFrame, *, float_format: str, caption: str | None = None) -> str:
    r"""Return a table in LaTeX (``booktabs``): text escaped, Greek letters, signs, powers and indices as mathematics.

    Parameters
    ----------
    frame : DataFrame
    float_format : str
        Such as ``"%.6g"``.
    caption : str, optional
        With it the tabular stands in a table.

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
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉₊]+", lambda run: f"$_{{{run[0].translate(_LOWERED)}}}$", text)
    return text.translate(_SYMBOLS)
