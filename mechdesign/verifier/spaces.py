"""Finite metric spaces: the distances between all points, in doubles.

They are stated as a matrix, or follow from the kind of space: of clusters one within and one across, along the edges of a tree, great circles
of the mean earth between degrees of latitude and longitude, else straight lines between coordinates.
"""

from __future__ import annotations

import math
from fractions import Fraction

from mechdesign.verifier.reading import Account, Json, Refused

EARTH = 6371.0088
"""Its mean radius in kilometres, of which great circles are."""


def distances(space: Json, account: Account) -> list[list[float]]:
    """The distances between all points, in doubles."""
    size, kind = math.prod(space["shape"]), space["kind"]
    account.takes(6 * size**2)
    if space["matrix"] is not None:
        found = space["matrix"]
    elif kind == "clustered":
        near, far = map(float, cluster_distances(space))
        each = space["shape"][1]
        found = [[near if x // each == y // each else far for y in range(size)] for x in range(size)]
    elif kind == "tree":
        found = along(space)
    elif kind == "geodesic":
        found = [[great_circle(p, q) for q in space["points"]] for p in space["points"]]
    else:
        found = [[math.dist(p, q) for q in space["points"]] for p in space["points"]]
    apart = (d for x, row in enumerate(found) for y, d in enumerate(row) if x != y)
    whole = len(found) == size and all(len(row) == size for row in found)
    if not whole or not all(0 < d < math.inf for d in apart):
        raise Refused("points of a space that are not apart, or of another number")
    return [[0.0 if x == y else d for y, d in enumerate(row)] for x, row in enumerate(found)]


def along(space: Json) -> list[list[float]]:
    """Lengths of paths in a tree: to where two nodes' ways to the root meet."""
    ways = []
    for leaf in space["leaves"]:
        way, length, node = {}, Fraction(0), leaf
        while node >= 0 and node not in way:
            way[node] = length
            length, node = length + Fraction(space["lengths"][node]), space["parents"][node]
        ways.append(way)
    return [[float(min(way[n] + other[n] for n in way if n in other)) for other in ways] for way in ways]


def great_circle(one: list[float], other: list[float]) -> float:
    (a, b), (c, d) = (map(math.radians, place) for place in (one, other))
    chord = math.sin((a - c) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((b - d) / 2) ** 2
    return 2 * EARTH * math.asin(math.sqrt(min(chord, 1.0)))


def cluster_distances(space: Json) -> tuple[Fraction, Fraction]:
    """The distances within a cluster and across."""
    if space["kind"] != "clustered" or len(space["shape"]) != 2 or min(space["shape"]) < 1:
        raise Refused("a space that is not clustered")
    return Fraction(space["within"]), Fraction(space["across"])
