"""Pages made from the code, so that they cannot disagree with it: API lists, command line, TOML designs, extras.

Everything is written under ``generated/`` before Sphinx reads the sources; guides include or link it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

import mechdesign
from mechdesign.problem.spine import ModelledDesign
from mechdesign.shell.spec_file import designs

ROOT = Path(__file__).parents[2]
PACKAGE = Path(mechdesign.__file__).parent
TITLES = {
    "accounting": "Accounting", "channels": "Metric-private channels", "choice": "Choice and quantiles", "choose": "Comparing", "evidence": "Evidence",
    "learning": "Learning", "model": "Models", "noise": "Noise", "plan": "Plans and ledgers", "problem": "Questions", "quantizers": "Quantizers",
    "solvers": "Solvers", "spaces": "Metric spaces", "user_level": "User level", "vectors": "Vectors",
}  # fmt: skip


def names(stub: Path) -> list[str]:
    """What a stub file makes public, rooms left out."""
    found = []
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [alias.asname or alias.name for alias in node.names]
    return found


def wings() -> dict[str, list[str]]:
    """Public names by wing."""
    return {s.parent.name: sorted(names(s), key=_order) for s in sorted(PACKAGE.glob("*/__init__.pyi"))}


def _order(word: str) -> tuple[bool, str]:
    """Alphabetical; what is received, results and certificates, after what is called."""
    return word.endswith(("Certificate", "Result")), word.lower()


def _heading(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"


def _table(module: str, words: list[str]) -> str:
    rows = "".join(f"   {word}\n" for word in words)
    return f".. currentmodule:: {module}\n\n.. autosummary::\n   :toctree: .\n\n{rows}\n"


def _first(wing: str) -> str:
    """The sentence with which a wing introduces itself."""
    said = inspect.getdoc(importlib.import_module(f"mechdesign.{wing}")) or ""
    return " ".join(said.split("\n\n")[0].split())


def api_pages() -> dict[str, str]:
    """One page a wing, and one for the names at the top."""
    by_wing = wings()
    home = {word: wing for wing, words in by_wing.items() for word in words}
    top = names(PACKAGE / "__init__.pyi")
    here = sorted(word for word in top if word not in home)
    text = _heading("Top level") + f".. automodule:: {mechdesign.__name__}\n   :no-members:\n\n"
    text += _table("mechdesign", here) + "From the wings, also reachable as ``md.<name>``:\n\n"
    for wing, words in by_wing.items():
        both = [w for w in words if w in top]
        if both:
            text += f"* :doc:`{TITLES.get(wing, wing)} <{wing}>`: "
            text += ", ".join(f":py:obj:`{w} <mechdesign.{wing}.{w}>`" for w in both) + "\n"
    pages = {"api/mechdesign": text}
    for wing, words in by_wing.items():
        module = importlib.import_module(f"mechdesign.{wing}")
        pages[f"api/{wing}"] = (
            _heading(TITLES.get(wing, wing))
            + f"``mechdesign.{wing}``\n\n{inspect.getdoc(module)}\n\n"
            + _table(f"mechdesign.{wing}", words)
        )
    pages["api/index"] = (
        _heading("API by wing")
        + "``import mechdesign as md`` loads names when they are used. What most programs need is at the top; "
        + "the rest lives in its wing: a wing holds one subject, from its mathematics to its designs.\n\n"
        + "".join(
            f"* :doc:`{TITLES.get(wing, wing)} <{wing}>` (``mechdesign.{wing}``): {_first(wing)}\n"
            for wing in by_wing
        )
        + "\n.. toctree::\n   :hidden:\n\n   mechdesign\n"
        + "".join(f"   {wing}\n" for wing in by_wing)
    )
    return pages


def toml_page() -> str:
    """Every design that a TOML file can ask for, with its keys and their defaults."""
    text = ""
    for word, design in designs().items():
        home = next(w for w, words in wings().items() if word in words)
        text += f'``design = "{word}"`` (:py:obj:`{word} <mechdesign.{home}.{word}>`)\n'
        text += (
            f"   {inspect.getdoc(design).splitlines()[0]}\n\n   .. list-table::\n      :header-rows: 1\n\n"
        )
        text += "      * - key\n        - default\n"
        for key in inspect.signature(design).parameters.values():
            text += f"      * - ``{key.name}``\n        - {_default(key)}\n"
        modelled = not isinstance(design, type) or issubclass(design, ModelledDesign)
        options = [
            f"``{p.name}``" for p in list(inspect.signature(ModelledDesign.solve).parameters.values())[1:]
            if p.kind is not p.VAR_KEYWORD and (modelled or p.name != "solver")
        ]  # fmt: skip
        text += f"\n   In ``[solve]``: {', '.join(options)}.\n\n"
    return text


def _default(key: inspect.Parameter) -> str:
    if key.default is inspect.Parameter.empty:
        return "*required*"
    if "factory" in repr(key.default):
        return "its own"
    return "not set" if key.default is None else f"``{key.default!r}``"


def command_page() -> str:
    """The command line's own help, as Markdown."""
    command = [sys.executable, "-m", "typer", "mechdesign.shell.cli", "utils", "docs", "--name", "mechdesign"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def extras_page() -> str:
    """The extras, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = ".. list-table::\n   :header-rows: 1\n\n   * - extra\n     - brings\n"
    for extra, needs in project["optional-dependencies"].items():
        text += f"   * - ``[{extra}]``\n     - {', '.join(needs)}\n"
    return text


def write(app: Sphinx, _config: object) -> None:
    """Write what changed, which Sphinx then reads again, and remove pages of names that are gone."""
    pages = {f"{name}.rst": text for name, text in api_pages().items()}
    pages |= {"toml.inc": toml_page(), "extras.inc": extras_page(), "command-line.md": command_page()}
    stubs = {f"mechdesign.{word}" for word in names(PACKAGE / "__init__.pyi")}
    stubs |= {f"mechdesign.{wing}.{word}" for wing, words in wings().items() for word in words}
    for page in Path(app.srcdir, "generated", "api").glob("*.rst"):  # of an earlier build
        if page.stem not in stubs and f"api/{page.name}" not in pages:
            page.unlink()
    for name, text in pages.items():
        path = Path(app.srcdir) / "generated" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict:
    """Run before Sphinx looks for its sources."""
    app.connect("config-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
