"""The arrows of the design: who may import whom; and that the distribution ships every package."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import mechdesign

SOURCE = Path(mechdesign.__file__).parent
ROOT = Path(__file__).parent.parent

# package → what it must not import
FORBIDDEN = {
    "mechanisms": (
        "mechdesign.solvers",
        "mechdesign.designs",
        "mechdesign.audit",
        "mechdesign.search",
        "cvxpy",
        "highspy",
    ),
    "audit": ("mechdesign.solvers", "mechdesign.designs", "mechdesign.search", "cvxpy", "highspy"),
    "solvers": ("mechdesign.designs", "mechdesign.mechanisms", "mechdesign.audit", "mechdesign.search"),
    "accounting": ("mechdesign.solvers", "mechdesign.designs", "mechdesign.audit", "cvxpy", "highspy"),
}


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_arrows_point_one_way(package: str) -> None:
    for path in (SOURCE / package).rglob("*.py"):
        bad = {i for i in imports(path) for f in FORBIDDEN[package] if i == f or i.startswith(f + ".")}
        assert not bad, f"{path.relative_to(SOURCE)} imports {sorted(bad)}"


def test_studies_use_the_public_api_only() -> None:
    allowed = {"mechdesign", "mechdesign.shell.report", "mechdesign.plotting"}
    for path in (ROOT / "studies").glob("*.py"):
        used = {i for i in imports(path) if i.split(".")[0] == "mechdesign"}
        bad = {
            i
            for i in used
            if not any(i == a or (a != "mechdesign" and i.startswith(a + ".")) for a in allowed)
        }
        assert not bad, f"{path.name} imports {sorted(bad)}"


def test_every_package_is_shipped() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = set(table["tool"]["setuptools"]["packages"])
    present = {
        ".".join(("mechdesign", *p.parent.relative_to(ROOT / "mechdesign").parts))
        for p in (ROOT / "mechdesign").rglob("__init__.py")
    }
    assert present <= shipped


def test_public_names_are_documented() -> None:
    for name in mechdesign.__all__:
        value = getattr(mechdesign, name)
        assert value.__doc__ and len(value.__doc__.strip()) > 20, name
