"""How this documentation writes mathematics.

Formulas become MathML: drawn by the browser itself, read by screen readers, nothing fetched and no script. A bar in
prose is an absolute value, ``|x − y|``, not reStructuredText's substitution, which nothing here uses.
"""

import re

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

# Characters that docstrings use in formulas and the converter lacks.
WORDS = {
    r"\texttt": r"\mathtt",
    "∝": r"\propto ",
    r"\dots": r"\ldots",
    r"\tfrac": r"\frac",
    "−": "-",
    "…": r"\ldots ",
    "·": r"\cdot ",
}

logger = logging.getLogger(__name__)


def _mathml(self, node, block: bool) -> str:
    formula = node.astext()
    for word, other in WORDS.items():
        formula = formula.replace(word, other)
    try:
        return latex2mathml.tex2mathml(formula, as_block=block)
    except Exception as error:  # docutils' own error class has moved between its versions
        logger.warning("formula not understood: %s (%s)", node.astext(), error, location=node)
        return self.encode(node.astext())


def _inline(self, node) -> None:
    self.body.append(f'<span class="math">{_mathml(self, node, False)}</span>')
    raise nodes.SkipNode


def _display(self, node) -> None:
    self.body.append(f'<div class="math" tabindex="0">{_mathml(self, node, True)}</div>')
    raise nodes.SkipNode


def _bar(_self, match, _lineno):
    return match.string[: match.end("start")], [], match.string[match.end("start") :], []


def first_sentence(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Of methods inherited from scikit-learn keep the first line: the rest refers to pages of its own documentation."""
    if str(getattr(thing, "__module__", "")).startswith("sklearn."):
        lines[:] = [re.sub(r":ref:`([^`<]*?)\s*<[^`]*>`", r"\1", line) for line in lines[:1]]


def breakable(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Let code in tables break between names, where a phone's columns are narrow, and never within one."""

    def names(code: re.Match[str]) -> str:
        return re.sub(r"(?<=[(,=\[])(?=\S)|(?<=\w{9})(?=\.[a-z])", "<wbr>", code[0])

    def table(found: re.Match[str]) -> str:
        return re.sub(r'(?<=<span class="pre">)[^<]+', names, found[0])

    if "body" in context:
        context["body"] = re.sub(r"<table.*?</table>", table, context["body"], flags=re.DOTALL)


def setup(app: Sphinx) -> dict:
    """Register the renderer and use it; read bars as bars."""
    app.connect("autodoc-process-docstring", first_sentence, priority=1)
    app.connect("html-page-context", breakable)
    Inliner.dispatch["|"] = _bar
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
