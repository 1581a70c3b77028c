"""The rules of the house, measured: import circles, imports that run upward, and functions over 60 lines.

``python tests/house.py`` prints all three. Nested and ``TYPE_CHECKING`` imports count; nothing of the package is run.
"""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mechdesign"

# Rooms of one floor do not import each other.
FLOORS: dict[str, int] = {
    "doubles": 0, "errors": 0, "typing": 0, "verifier": 0,
    "checks": 1, "plotting": 1,
    "solvers": 2,
    "evidence": 3,
    "problem": 4,
    "accounting": 5, "spaces": 5,
    "model": 6,
    "quantizers": 7,
    "noise": 8, "channels": 8, "vectors": 8,
    "choice": 9, "user_level": 9,
    "choose": 10, "learning": 10, "": 10,
    "plan": 11,
    "shell": 12, "extend": 12,
    "__main__": 13,
}  # fmt: skip

# Functions of more than 60 code lines, each with the reason.
LONG: dict[str, str] = {
    "accounting/sampling.py:_on_grids": "one derivation, whose six arrays every step needs",
    "channels/linear_design.py:best_weights": "one Newton step of an interior-point method, whose blocks share their factors",
}  # fmt: skip


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, by dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Dotted names that a file imports, wherever it does: what ``from a import b`` takes is ``a.b``."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


@cache
def arrows() -> dict[str, set[str]]:
    """For every module, the modules of the package that it imports."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        graph[name] = set()
        for target in imports(path):
            while target and target not in known:
                target = target.rpartition(".")[0]
            if target and target != name:
                graph[name].add(target)
    return graph


def room(module: str) -> str:
    """The room a module stands in: the package's part, "" for the public names themselves."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor(module: str) -> int:
    """The floor of a module; files beside ``__init__`` that are no rooms of their own stand with the public names."""
    return FLOORS.get(room(module), FLOORS[""])


def upward(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Imports that leave their room for another on the same floor or above."""
    return sorted(
        (a, b) for a, targets in graph.items() for b in targets if room(a) != room(b) and floor(b) >= floor(a)
    )


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Nodes that reach themselves."""

    def reaches(start: str) -> bool:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for target in graph.get(todo.pop(), ()):
                if target == start:
                    return True
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return False

    return [node for node in graph if reaches(node)]


def sub_rooms(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The arrows between the sub-rooms (folders, and single files beside them) of every wing."""

    def sub(module: str) -> str:
        return ".".join(module.split(".")[:3])

    out: dict[str, set[str]] = {}
    for a, targets in graph.items():
        for b in targets:
            if room(a) == room(b) and sub(a) != sub(b):
                out.setdefault(sub(a), set()).add(sub(b))
    return out


def long_functions() -> dict[str, int]:
    """Code lines of every function whose body, without docstring, comments and blanks, has more than 60."""
    found = {}
    for path in modules().values():
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.FunctionDef):
                body = node.body[ast.get_docstring(node) is not None :] or node.body
                own = lines[body[0].lineno - 1 : node.end_lineno]
                count = sum(1 for line in own if line.strip() and line.strip()[0] != "#")
                if count > 60:
                    found[f"{path.relative_to(PACKAGE)}:{node.name}"] = count
    return found


def main() -> None:
    """Print the measures of the house."""
    graph = arrows()
    for title, found in (
        ("files in circles", circles(graph)),
        ("sub-rooms in circles", circles(sub_rooms(graph))),
        ("upward imports", [f"{a} -> {b}" for a, b in upward(graph)]),
        ("functions over 60 lines without a reason", sorted(long_functions().keys() - LONG.keys())),
    ):
        print(f"{title}: {len(found)}")
        for line in found:
            print(f"  {line}")


if __name__ == "__main__":
    main()
