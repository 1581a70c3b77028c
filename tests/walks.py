"""Trips of parameters: the functions of the package that a value is handed to, in the order a reader meets who follows it.

``python tests/walks.py [COUNT]`` prints the longest, and fails where one has more returns or climbs than are allowed. A trip
starts at a parameter of a function (not at ``self``, which nobody hands on). It follows the value, its fields and elements, copies
with a field replaced and further names of them into every call and property that receives them; each function is read once, as
the code stands, whatever branch would run. Checks and refusals are left out: they give the value back, or end the trip.
A *return* opens a file again after another; a *climb* is a return to a file on a higher floor of the house than the one before.
"""

import ast
import sys
from functools import cache

import house

MOST_RETURNS, MOST_CLIMBS = 15, 3
CHECKS = {"mechdesign.errors", "mechdesign.typing", "mechdesign.checks"}
Place = tuple[str, str]  # module and qualified name


@cache
def module(name: str) -> tuple[dict[str, ast.FunctionDef], dict[str, ast.ClassDef], dict[str, Place]]:
    """Functions, methods as ``Class.method``; classes; and what is imported, by local name."""
    tree = ast.parse(house.modules()[name].read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    bodies = [("", tree.body), *((f"{name}.", node.body) for name, node in classes.items())]
    functions = {
        f"{owner}{f.name}": f for owner, body in bodies for f in body if isinstance(f, ast.FunctionDef)
    }
    lines = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return (
        functions,
        classes,
        {a.asname or a.name: (node.module, a.name) for node in lines for a in node.names},
    )


@cache
def find(where: str, name: str) -> Place | None:
    """The place that defines a dotted name of a module, be it a method of a base class."""
    head, _, rest = name.partition(".")
    functions, classes, imported = module(where)
    if head in imported and head not in classes:
        source, original = imported[head]
        if (inner := f"{source}.{original}") in house.modules():
            return find(inner, rest) if rest else None
        return find(source, f"{original}.{rest}" if rest else original) if source in house.modules() else None
    if name in functions or name in classes:
        return where, name
    bases = classes[head].bases if head in classes and rest else []
    return next(filter(None, (find(where, f"{ast.unparse(base)}.{rest}") for base in bases)), None)


def class_of(where: str, annotation: ast.expr | None) -> Place | None:
    """The class of the package that an annotation names first."""
    names = (node.id for node in ast.walk(annotation or ast.Pass()) if isinstance(node, ast.Name))
    places = (place for name in names if (place := find(where, name)))
    return next((place for place in places if place[1] in module(place[0])[1]), None)


class Trip(ast.NodeVisitor):
    """Follow parameters of a function through its calls, in the order in which they are written."""

    def __init__(self, place: Place, followed: set[str], seen: list[Place]) -> None:
        self.where, self.owner, self.seen = place[0], place[1].partition(".")[0], seen
        seen.append(place)
        code = module(self.where)[0][place[1]]
        given = [a for a in ast.walk(code.args) if isinstance(a, ast.arg) and a.arg in followed]
        self.names = {a.arg: class_of(self.where, a.annotation) for a in given}
        if "self" in followed:
            self.names["self"] = (self.where, self.owner)
        for statement in code.body:
            self.visit(statement)

    def part(self, node: ast.AST) -> tuple[bool, Place | None]:
        """Whether an expression is what is followed, or a part of it, and of which class."""
        if isinstance(node, ast.Name):
            return node.id in self.names, self.names.get(node.id)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "replace":
            return self.part(node.args[0])
        if not isinstance(node, ast.Subscript | ast.Starred | ast.Attribute):
            return False, None
        known, kind = self.part(node.value)
        if not kind or not isinstance(node, ast.Attribute):
            return known, kind if not isinstance(node, ast.Attribute) else None
        if find(kind[0], f"{kind[1]}.{node.attr}"):
            return False, None  # what a property returns is another value
        fields = (n for n in module(kind[0])[1][kind[1]].body if isinstance(n, ast.AnnAssign))
        return known, class_of(
            kind[0], next((n.annotation for n in fields if n.target.id == node.attr), None)
        )  # type: ignore[union-attr]

    def visit_Raise(self, node: ast.Raise) -> None:
        """A refusal ends the trip."""

    def visit_Assign(self, node: ast.Assign) -> None:
        """Follow a further name of what is followed."""
        self.visit(node.value)
        pairs = [(node.targets[0], node.value)]
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
        for target, value in pairs:
            if isinstance(target, ast.Name):
                known, kind = self.part(value)
                self.names.pop(target.id, None)
                self.names.update({target.id: kind} if known else {})

    def visit_For(self, node: ast.For | ast.comprehension) -> None:
        """Follow the elements of what is followed."""
        known, kind = self.part(node.iter)
        names = (n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))
        self.names.update(dict.fromkeys(names, kind) if known else {})
        self.generic_visit(node)

    visit_comprehension = visit_For

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Enter a property of what is followed."""
        if kind := self.part(node.value)[1]:
            self.enter(find(kind[0], f"{kind[1]}.{node.attr}"), {"self"})
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Enter what is called with what is followed."""
        self.generic_visit(node)
        text = ast.unparse(node.func).replace("self.", f"{self.owner}.").replace("cls.", f"{self.owner}.")
        place = find(self.where, text) if text.replace(".", "").isidentifier() else None
        if isinstance(node.func, ast.Attribute) and (kind := self.part(node.func.value)[1]):
            place = find(kind[0], f"{kind[1]}.{node.func.attr}")
        if place and place[1] in module(place[0])[0]:
            code = module(place[0])[0][place[1]].args
            names = [a.arg for a in (*code.posonlyargs, *code.args) if a.arg not in ("self", "cls")]
            given = {k.arg for k in node.keywords if self.part(k.value)[0] and k.arg}
            self.enter(place, given | {n for n, a in zip(names, node.args, strict=False) if self.part(a)[0]})

    def enter(self, place: Place | None, followed: set[str]) -> None:
        """Follow into a function that was not read yet."""
        if (
            followed
            and place
            and place not in self.seen
            and place[0] not in CHECKS
            and place[1] in module(place[0])[0]
        ):
            Trip(place, followed, self.seen)


def trips() -> list[tuple[int, int, int, str]]:
    """Returns, climbs, files and name of every trip, the longest first."""
    out = []
    for name in house.modules():
        for function, code in module(name)[0].items():
            for a in (
                a for a in ast.walk(code.args) if isinstance(a, ast.arg) and a.arg not in ("self", "cls")
            ):
                Trip((name, function), {a.arg}, seen := [])
                files = [m for i, (m, _) in enumerate(seen) if not i or seen[i - 1][0] != m]
                back = [i for i, m in enumerate(files) if m in files[:i]]
                climbs = sum(house.floor(files[i]) > house.floor(files[i - 1]) for i in back)
                out.append(
                    (len(back), climbs, len(set(files)), f"{name.partition('.')[2]}:{function}:{a.arg}")
                )
    return sorted(out, reverse=True)


def main() -> None:
    """Print the longest trips, and fail where one is too long."""
    found = trips()
    print("returns climbs files trip")
    for returns, climbs, files, name in found[: int(sys.argv[1]) if len(sys.argv) > 1 else 5]:
        print(f"{returns:7} {climbs:6} {files:5} {name}")
    long = [name for returns, climbs, _, name in found if returns > MOST_RETURNS or climbs > MOST_CLIMBS]
    print(f"{len(found)} trips, {len(long)} with more than {MOST_RETURNS} returns or {MOST_CLIMBS} climbs")
    if long:
        sys.exit("\n".join(long))


if __name__ == "__main__":
    main()
