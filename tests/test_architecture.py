"""The rules of the house: floors, circles, borders; and that the distribution ships every package."""

import ast
import doctest
import functools
import importlib
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import requires
from pathlib import Path

import house
import pytest

import mechdesign

ROOT = Path(__file__).parent.parent


def test_no_import_runs_upward_or_in_a_circle() -> None:
    assert house.upward(house.arrows()) == []
    for graph in (house.arrows(), house.sub_rooms(house.arrows())):
        assert house.circles(graph) == []


def test_functions_over_60_lines_have_a_reason() -> None:
    assert house.long_functions().keys() == house.LONG.keys()


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
    assert mechdesign.errors.DataError is mechdesign.DataError  # as a traceback names it
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


def test_equations_of_the_papers_are_where_the_guide_says() -> None:
    page = (ROOT / "docs" / "guides" / "from_the_paper.rst").read_text(encoding="utf-8")
    places = re.findall(r"``(\w+/\w+)\.py``, ``([\w.]+)``$", page, re.M)
    assert len(places) == page.count(".py``, ``") > 50
    for file, name in places:
        home = import_module(f"mechdesign.{file.replace('/', '.')}")
        functools.reduce(getattr, name.split("."), home)
        assert getattr(home, name.split(".")[0]).__module__ == home.__name__, f"{file}.py imports {name}"


# -- Every benchmark runs as its docstring says: it names its command, and that module imports and has a `main`

FOLDER = Path(__file__).parent.parent / "studies" / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("bench_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs_as_its_docstring_says(name: str, monkeypatch) -> None:
    monkeypatch.syspath_prepend(FOLDER.parent.parent)
    module = import_module(f"studies.benchmarks.{name}")
    assert f"python -m studies.benchmarks.{name}" in module.__doc__
    assert callable(module.main)


# -- What the core needs is what it declares, and the error of an absent extra names it ----------------------

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BROUGHT = {
    "markupsafe": ("jinja2", "markupsafe"),
    "markdown_it": ("rich", "markdown-it-py"),
    "pil": ("matplotlib", "pillow"),
}
"""Modules that a dependency of ours brings under every circumstance, and by which name it asks for them."""
IMPORTED_AS = {
    "python-flint": "flint",
    "dp-accounting": "dp_accounting",
    "pot": "ot",
    "scikit-learn": "sklearn",
    "flwr": "flwr",
}


def modules_of(requirements: list[str]) -> set[str]:
    names = (re.match(r"[\w-]+", r)[0].lower() for r in requirements)  # type: ignore[index]
    return {IMPORTED_AS.get(name, name) for name in names}


CORE = modules_of(PROJECT["dependencies"])
EXTRAS = {
    name: modules_of(needs)
    for name, needs in PROJECT["optional-dependencies"].items()
    if name not in ("all", "check", "docs", "test")
}


@pytest.mark.slow
def test_every_import_is_declared() -> None:
    known = CORE.union(
        *EXTRAS.values(), BROUGHT, sys.stdlib_module_names, {"mechdesign", "mechdesign_studies"}
    )
    for name, path in house.modules().items():
        stray = {t.split(".")[0].lower() for t in house.imports(path)} - known
        assert not stray, f"{name} imports {stray}, which pyproject.toml does not name"


def test_what_dependencies_bring() -> None:
    for module, (bringer, name) in BROUGHT.items():
        wanted = [r for r in requires(bringer) or [] if r.lower().startswith(name)]
        assert bringer in CORE and wanted and not any(";" in r for r in wanted), f"{module}: {wanted}"


def test_every_extra_that_an_error_names_exists() -> None:
    named = {
        match
        for path in house.modules().values()
        for match in re.findall(r'MissingExtra\.of\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert named and named <= set(EXTRAS)
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert everything == f"mechdesign[{','.join(EXTRAS)}]"


@pytest.mark.slow
def test_without_any_extra() -> None:
    """The core designs, certifies and saves; what needs an extra says which."""
    script = f"""
import pathlib, sys, tempfile

class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {sorted(set().union(*EXTRAS.values()))}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import mechdesign as md
from mechdesign.noise import opendp_measurement, discrete_laplace_law

design = md.OptimalQuantizer([-3, -0.5, 0.5, 3], md.PureDP(1.0), [-1.0, 0.25, 1.0], input_range=(-1, 1))
result = design.solve()
folder = pathlib.Path(tempfile.mkdtemp())
result.save(folder / "result.json")
assert md.load(folder / "result.json").certificate.verify()
plane = md.MetricSpace.euclidean([[0, 0], [3, 4], [3, 0]])
for extra, call in dict(
    parquet=lambda: result.to_parquet(folder / "r.parquet"),
    emd=lambda: md.emd([0.5, 0.5, 0], [0, 0.5, 0.5], plane),
    pld=lambda: md.accounting.to_pld,
    opendp=lambda: opendp_measurement(discrete_laplace_law(1.0)),
    dask=lambda: md.OPTMSearch(md.PureDP(1.0), [-1.0, 1.0], input_range=(-1, 1)).solve(backend="dask", jobs=2),
    ray=lambda: md.OPTMSearch(md.PureDP(1.0), [-1.0, 1.0], input_range=(-1, 1)).solve(backend="ray", jobs=2),
).items():
    try:
        call()
    except md.MissingExtra as error:
        assert f"mechdesign[{{extra}}]" in str(error), error
    else:
        raise SystemExit(f"{{extra}} was not missed")
assert not (folder / "r.parquet").exists()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
