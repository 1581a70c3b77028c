"""Kinds of doctoring: what one who edits a result file and seals it anew may do to it.

Each takes a source of randomness, the payload and that of another honest file, and gives the payload that is sealed; the payload
itself where there was nothing to do. Some damage one leaf, some know the format, some mix two honest files.
"""

import copy
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from campaign.trees import ATOMS, alterations, at, leaves, places, put, resized

Payload = Any
Doctoring = Callable[[random.Random, Payload, Payload], Payload]


def chosen(rng: random.Random, payload: Payload, kind: type | tuple[type, ...]) -> tuple[Any, ...] | None:
    """The path of some node of a type; none where there is none. True is no number."""
    found = [
        path
        for path in places(payload)
        if path and type(at(payload, path)) in ((kind,) if isinstance(kind, type) else kind)
    ]
    return rng.choice(found) if found else None


def on(kind: type | tuple[type, ...], change: Callable[[random.Random, Any], Any]) -> Doctoring:
    """Change one node of a type."""

    def doctoring(rng: random.Random, payload: Payload, other: Payload) -> Payload:
        path = chosen(rng, payload, kind)
        return payload if path is None else put(payload, path, change(rng, copy.deepcopy(at(payload, path))))

    return doctoring


def listed(change: Callable[[random.Random, list[Any]], list[Any]]) -> Doctoring:
    """Change one list, and the shape of the array that it is the values of."""

    def doctoring(rng: random.Random, payload: Payload, other: Payload) -> Payload:
        path = chosen(rng, payload, list)
        if path is None or not at(payload, path):
            return payload
        return resized(payload, path, change(rng, copy.deepcopy(at(payload, path))))

    return doctoring


def changed_number(rng: random.Random, value: Any) -> Any:
    changes = (
        lambda v: v * 0.9, lambda v: v * 1.1, lambda v: -v, lambda v: v + 1, lambda v: v - 1, lambda v: math.nextafter(v, math.inf),
        lambda v: math.nextafter(v, -math.inf), lambda v: v * (1 + 1e-9), lambda v: 0, lambda v: v * 1e300, lambda v: int(v), lambda v: v * 2,
    )  # fmt: skip
    try:
        return rng.choice(changes)(value)
    except (OverflowError, ValueError):
        return 0


def leaf_altered(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    """A number more or less, another word or truth value, a list that is shorter."""
    _, made = rng.choice([*alterations(rng, payload, rng.choice([*leaves(payload)]))])
    return made


def swapped(rng: random.Random, values: list[Any]) -> list[Any]:
    j, k = rng.randrange(len(values)), rng.randrange(len(values))
    values[j], values[k] = values[k], values[j]
    return values


def member_gone(rng: random.Random, members: dict[str, Any]) -> dict[str, Any]:
    del members[rng.choice(list(members))]
    return members


def member_added(rng: random.Random, members: dict[str, Any]) -> dict[str, Any]:
    return {**members, f"{rng.choice(list(members))}s": 1}


def moved_within(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    paths = list(places(payload))
    return put(payload, rng.choice(paths), copy.deepcopy(at(payload, rng.choice(paths))))


def moved_from_another(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    return put(
        payload, rng.choice(list(places(payload))), copy.deepcopy(at(other, rng.choice(list(places(other)))))
    )


def same_place_of_another(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    """A node of the other honest file at the place where it stands there."""

    def shared(path: tuple[Any, ...]) -> bool:
        try:
            return bool(at(other, path) != at(payload, path))
        except (KeyError, IndexError, TypeError):
            return False

    paths = [path for path in places(payload) if path and shared(path)]
    if not paths:
        return payload
    path = rng.choice(paths)
    return put(payload, path, copy.deepcopy(at(other, path)))


def mixed(*parts: str) -> Doctoring:
    """Parts of a result from the other honest file."""

    def doctoring(rng: random.Random, payload: Payload, other: Payload) -> Payload:
        fields = {**payload["fields"], **{part: copy.deepcopy(other["fields"][part]) for part in parts}}
        return {**payload, "fields": fields}

    return doctoring


def one_proof_of_another(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    made = copy.deepcopy(payload)
    own, foreign = (p["fields"]["proofs"]["$tuple"] for p in (made, other))
    if own and foreign:
        proof = rng.choice(foreign)
        same = [k for k, each in enumerate(own) if each["$kind"] == proof["$kind"]]
        own[rng.choice(same or range(len(own)))] = copy.deepcopy(proof)
    return made


def better(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    """Value and lower bound improved together."""
    fields, by = dict(payload["fields"]), rng.choice([1e-9, 1e-6, 1e-3, 0.1, 0.5])
    fields["value"] = fields["value"] * (1 - by)
    if fields["lower_bound"] is not None:
        fields["lower_bound"] = fields["lower_bound"] * (1 - by)
    return {**payload, "fields": fields}


def bound_raised(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    fields = dict(payload["fields"])
    bound = fields["lower_bound"]
    fields["lower_bound"] = (
        fields["value"] if bound is None else bound + rng.choice([1e-6, 0.01, 1.0]) * abs(bound)
    )
    return {**payload, "fields": fields}


def called_optimal(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    made = copy.deepcopy(payload)
    made["fields"]["solver_report"]["fields"]["status"] = rng.choice(["optimal", "best of its class"])
    made["fields"]["asked_gap"] = rng.choice([1e-9, 0.5, 1.0])
    if rng.random() < 0.5:
        made["fields"]["bound_class"] = rng.choice(["every mechanism", "this family", "this menu"])
    return made


def stricter_budget(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    """The budget of the question, and of every part that repeats it, made smaller."""
    made = copy.deepcopy(payload)
    by = rng.choice([1 - 1e-9, 0.99, 0.5])
    for owner in [at(made, path) for path in places(made)]:
        for name in ("epsilon", "delta", "rho", "alpha") if isinstance(owner, dict) else ():
            if type(owner.get(name)) is float and (rng.random() < 0.8):
                owner[name] *= by
    return made


def counts_made_huge(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    """One or two whole numbers made many times larger: much work, asked for by a small file."""
    made = payload
    for _ in range(rng.choice([1, 1, 2])):
        if (path := chosen(rng, made, int)) is not None:
            made = put(made, path, max(abs(at(made, path)), 1) * 10 ** rng.randint(1, 9))
    return made


def lists_repeated(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    """All lists of one length made longer, each member several times."""
    places_of = [path for path in places(payload) if path and path[-1] in ("$tuple", "$array")]
    lengths = sorted({len(at(payload, path)) for path in places_of} - {0})
    if not lengths:
        return payload
    length, times = rng.choice(lengths), rng.choice([2, 8, 40, 200])
    made = copy.deepcopy(payload)
    for path in sorted(places_of, key=len, reverse=True):  # the innermost first
        owner, values = at(made, path[:-1]), at(made, path)
        if len(values) == length:
            values[:] = [copy.deepcopy(v) for v in values for _ in range(times)]
            if path[-1] == "$array":
                owner["shape"] = [len(values), *owner["shape"][1:]]
    return made if sum(1 for _ in places(made)) < 300_000 else payload


def many_digits(rng: random.Random, payload: Payload, other: Payload) -> Payload:
    """Fractions, and whole numbers that are no counts, of up to 4,000 digits."""
    made, bits = copy.deepcopy(payload), rng.choice([60, 600, 6000, 12_000])
    for path in places(payload):
        value = at(payload, path)
        if path and path[-1] == "$fraction":
            above, below = map(int, value.split("/"))
            at(made, path[:-1])["$fraction"] = f"{(above << bits) + (above > 0)}/{below << bits}"
        elif type(value) is int and abs(value) > 2**50:
            at(made, path[:-1])[path[-1]] = value << bits
    return made


DOCTORINGS: dict[str, Doctoring] = {
    "number changed": on((int, float), changed_number),
    "leaf altered": leaf_altered,
    "hostile value": lambda rng, payload, other: put(
        payload, rng.choice(list(places(payload))), copy.deepcopy(rng.choice(ATOMS))
    ),
    "list longer": listed(lambda rng, v: [*v, copy.deepcopy(rng.choice(v))]),
    "list in another order": listed(swapped),
    "member left out": on(dict, member_gone),
    "member added": on(dict, member_added),
    "part moved within": moved_within,
    "part of another file": moved_from_another,
    "same part of another file": same_place_of_another,
    "question of another file": mixed("design"),
    "mechanism of another file": mixed("mechanism"),
    "mechanism and value of another file": mixed("mechanism", "value"),
    "proofs of another file": mixed("proofs"),
    "one proof of another file": one_proof_of_another,
    "bound and proofs of another file": mixed("lower_bound", "proofs", "bound_class"),
    "question and bound of another file": mixed("design", "lower_bound", "bound_class", "asked_gap"),
    "value and bound better": better,
    "bound raised": bound_raised,
    "called optimal": called_optimal,
    "budget smaller throughout": stricter_budget,
    "counts made huge": counts_made_huge,
    "lists repeated": lists_repeated,
    "numbers of many digits": many_digits,
}


def doctored(rng: random.Random, payload: Payload, other: Payload) -> Iterator[tuple[str, Payload]]:
    """Doctorings in a random order, each with its name, that change the payload."""
    for name in rng.sample(list(DOCTORINGS), len(DOCTORINGS)):
        try:
            made = DOCTORINGS[name](rng, payload, other)
        except (OverflowError, ZeroDivisionError, IndexError):  # nothing to do there
            continue
        if made != payload or repr(made) != repr(payload):
            yield name, made
