"""The rules of the house: floors, circles, borders; and that the distribution ships every package."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path

import house

import mechdesign

ROOT = Path(__file__).parent.parent


def test_no_import_runs_upward() -> None:
    assert house.upward(house.arrows()) == []


def test_no_circles_between_files() -> None:
    assert house.circles(house.arrows()) == []


def test_no_circles_between_the_sub_rooms_of_a_wing() -> None:
    assert house.circles(house.sub_rooms(house.arrows())) == []


def test_no_file_imports_its_own_packages_init() -> None:
    for name, targets in house.arrows().items():
        package = name.rpartition(".")[0]
        assert package not in targets or package == "mechdesign", f"{name} imports {package}"


def test_underscore_names_stay_at_home() -> None:
    for name, path in house.modules().items():
        bad = [
            t
            for t in house.imports(path)
            if t.startswith("mechdesign") and t.rpartition(".")[2].startswith("_")
        ]
        assert not bad, f"{name} imports {bad}"


def test_highspy_stays_in_the_solvers() -> None:
    for name, path in house.modules().items():
        if house.room(name) != "solvers":
            assert not [t for t in house.imports(path) if t.split(".")[0] == "highspy"], name


def test_packages_say_what_lives_in_them() -> None:
    for name, path in house.modules().items():
        if path.name == "__init__.py":
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            assert len(doc.split()) >= 8, f"{name}: {doc!r} says nothing"


def test_studies_use_the_public_api_only() -> None:
    allowed = ("mechdesign.shell.studykit", "mechdesign.plotting", "mechdesign.extend")
    for path in (ROOT / "studies").rglob("*.py"):
        if {"benchmarks", "baselines"} & {
            *path.parts,
            path.stem,
        }:  # published mechanisms are written as ours are
            continue
        inner = [t for t in house.imports(path) if t.startswith("mechdesign.")]
        assert all(t.startswith(allowed) for t in inner), f"{path.name} imports {inner}"


def test_public_names_are_documented() -> None:
    for name in mechdesign.__all__:
        value = getattr(mechdesign, name)
        assert value.__doc__ and len(value.__doc__.strip()) > 20, name


def test_every_public_name_of_every_wing_loads() -> None:
    for stub in sorted((ROOT / "mechdesign").rglob("__init__.pyi")):
        wing = importlib.import_module(".".join(stub.parent.relative_to(ROOT).parts))
        assert [name for name in wing.__all__ if not hasattr(wing, name)] == []


def test_guides_show_whole_outputs() -> None:
    parser = doctest.DocTestParser()
    for page in sorted((ROOT / "docs" / "guides").glob("*.rst")):
        for example in parser.get_examples(page.read_text(encoding="utf-8")):
            assert "..." not in example.want, f"{page.name}, line {example.lineno + 1}"
