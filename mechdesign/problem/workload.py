r"""Linear queries on counts: prefix sums, ranges, marginals, products of these, or any matrix; and the subspace in which neighbouring answers differ.

The sensitivity vectors are taken as the exact values of their floats. Their span is described by r of the K coordinates
and a rational matrix E with :math:`v = E v_P` for every vector of the span: only the coordinates P need noise, and
the rest of the query, :math:`f - E f_P`, is the same for all neighbours.

A workload is a stack of Kronecker products of small matrices, as in HDMM (McKenna, Miklau, Hay and Machanavajjhala 2018).
Designs need its Gram matrix :math:`W = A^\top A`, a root of it, and :math:`A x`, never A itself: the matrix of all ranges of
1,024 counts would fill 4 GB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import combinations, product
from typing import Any

import flint
import numpy as np
from scipy import linalg

from mechdesign import checks
from mechdesign.checks import Checked, answers, array, field, instance, integer, listed, one_of, settle
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.typing import Array, Numbers

Lift = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, eq=False)
class Span:
    """A subspace of R^K of dimension r, as the graph of a map over r of its coordinates.

    Parameters
    ----------
    size : int
        K.
    coordinates : tuple of int
        P, ascending.
    lift : tuple of tuple of Fraction, optional
        E, shape (K, r); None where r = K.
    """

    size: int
    coordinates: tuple[int, ...]
    lift: Lift | None = None

    @property
    def rank(self) -> int:
        """r."""
        return len(self.coordinates)

    @cached_property
    def matrix(self) -> Array:
        """E in floats."""
        if self.lift is None:
            return np.eye(self.size)
        return np.array([[float(x) for x in row] for row in self.lift])

    def inside(self, vector: Array) -> bool:
        """Whether a vector lies exactly in the subspace."""
        return self.lift is None or not any(self.outside(vector))

    def outside(self, vector: Array) -> list[Fraction]:
        r"""Return :math:`v - E v_P` in exact numbers."""
        exact = [Fraction(x) for x in np.asarray(vector, dtype=float).tolist()]
        if self.lift is None:
            return [Fraction(0)] * self.size
        chosen = [exact[p] for p in self.coordinates]
        return [
            x - sum((e * c for e, c in zip(row, chosen) if e and c), Fraction(0))
            for x, row in zip(exact, self.lift)
        ]


def span_of(vectors: Array) -> Span:
    """Return the span of the rows of `vectors`; only directions that are exactly zero are dropped.

    The reduced row echelon form over the rationals gives rank, coordinates and lift.

    Examples
    --------
    >>> span = span_of(np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]))
    >>> span.rank, span.inside(np.array([5.0, -2.0, -3.0])), span.inside(np.ones(3))
    (2, True, False)
    """
    size = vectors.shape[1]
    # with the pivots of a QR factorisation the entries of E stay small
    scaled = vectors / np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-300)
    order = linalg.qr(scaled, mode="r", pivoting=True)[1]
    exact = [[flint.fmpq(*x.as_integer_ratio()) for x in row] for row in vectors[:, order].tolist()]
    reduced, rank = flint.fmpq_mat(exact).rref()
    if rank == size:
        return Span(size, tuple(range(size)))
    rows = [[Fraction(int(x.p), int(x.q)) for x in row] for row in reduced.tolist()[:rank]]
    # a row of the reduced form is the column of E that belongs to the row's pivot
    columns = {int(order[next(k for k, x in enumerate(row) if x)]): row for row in rows}
    chosen = sorted(columns)
    lift = tuple(tuple(columns[p][place] for p in chosen) for place in np.argsort(order).tolist())
    return Span(size, tuple(chosen), lift)


KINDS = ("identity", "total", "prefix", "ranges", "matrix")
_DENSE = 4_000_000
"""Most entries of a matrix that is formed."""
_COUNTS = 10**6
_SQUARE = 4096
"""Most counts n for which an n × n matrix is formed."""


@serializable("queries", eq=False)
class Queries(Checked):
    """Linear queries along one attribute.

    Parameters
    ----------
    kind : {"identity", "total", "prefix", "ranges", "matrix"}
        Every count; their sum; the sums of the first 1, 2, …; the sums of all intervals, by length; or the rows of a matrix.
    size : int
        n, the number of counts.
    matrix : array_like, shape (m, n), optional
        For kind "matrix".

    Examples
    --------
    >>> Queries("prefix", 3).dense()
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """

    kind: str = field(check=one_of, allowed=KINDS)
    size: int = field(check=integer, least=1, most=10**6)
    matrix: Array | None = field(check=array, ndim=2, default=None)

    def _post_check(self) -> None:
        if (self.kind == "matrix") != (self.matrix is not None):
            raise DesignError.of("matrix", self.matrix, 'belongs to kind "matrix"')
        if self.matrix is None:
            return
        if self.matrix.shape[1] != self.size:
            raise DesignError.of("matrix", self.matrix.shape, f"must have {self.size} columns")
        sizes = np.abs(self.matrix[self.matrix != 0])
        checks.refuse(
            not sizes.size, "matrix", self.matrix, "asks for nothing: it is zero (a workload of rank 0)"
        )
        if sizes.max() > 1e100 or sizes.min() < 1e-100:
            raise DesignError.of("matrix", float(sizes.max()), "must have entries between 1e-100 and 1e100")

    @property
    def _rows(self) -> Array:
        """The matrix of kind "matrix"."""
        return instance("matrix", self.matrix, np.ndarray)

    @property
    def count(self) -> int:
        """m, the number of queries."""
        n = self.size
        rows = 0 if self.matrix is None else len(self.matrix)
        return {"identity": n, "total": 1, "prefix": n, "ranges": n * (n + 1) // 2, "matrix": rows}[self.kind]

    @cached_property
    def injective(self) -> bool:
        """Whether different counts always have different answers, exactly."""
        if self.kind == "total":
            return self.size == 1
        return self.kind != "matrix" or (self.count >= self.size and span_of(self._rows).rank == self.size)

    def gram(self) -> Array:
        """AᵀA."""
        i = np.arange(self.size)
        if self.kind == "identity":
            return np.eye(self.size)
        if self.kind == "total":
            return np.ones((self.size, self.size))
        latest = np.maximum.outer(i, i)
        if self.kind == "prefix":
            return (self.size - latest).astype(float)
        if self.kind == "ranges":
            return np.asarray((np.minimum.outer(i, i) + 1) * (self.size - latest), dtype=float)
        return self._rows.T @ self._rows

    def apply(self, values: Array) -> Array:
        """Multiply A with the first axis of `values`; overflow gives infinity without a warning."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._applied(values)

    def _applied(self, values: Array) -> Array:
        if self.kind == "identity":
            return values
        if self.kind == "total":
            return np.asarray(values.sum(axis=0, keepdims=True))
        if self.kind == "matrix":
            return np.tensordot(self._rows, values, axes=1)
        sums = np.cumsum(values, axis=0)
        if self.kind == "prefix":
            return sums
        before = np.concatenate([np.zeros_like(sums[:1]), sums])
        return np.concatenate([before[k:] - before[:-k] for k in range(1, self.size + 1)])

    def dense(self) -> Array:
        """A."""
        return self.apply(np.eye(self.size))


def workload_of(name: str, value: Any) -> Workload:
    """Return a workload as it is, and that of a matrix."""
    return value if isinstance(value, Workload) else Workload(value)


@serializable("workload", eq=False)
class Workload(Checked):
    r"""Linear queries on counts, :math:`A x`.

    Parameters
    ----------
    blocks : array_like, shape (m, n), or sequence of sequences of Queries
        A matrix; or a stack of blocks of one shape, each a Kronecker product of queries along the attributes.

    Raises
    ------
    DesignError
        A workload of rank 0, entries that are not finite, blocks of different shapes, more than 1,000,000 counts.

    Examples
    --------
    >>> Workload.prefix_sums(4).apply([1, 2, 3, 4])
    array([ 1.,  3.,  6., 10.])
    >>> print(Workload.marginals((2, 3, 4), order=2))
    26 queries on 24 counts: marginals of 2 of 3 attributes
    >>> Workload([[1, 1, 0], [0, 1, 1]]).gram()
    array([[1., 1., 0.],
           [1., 2., 1.],
           [0., 1., 1.]])
    """

    blocks: Any
    name: str = field(str, default="")

    def _post_check(self) -> None:
        blocks = self.blocks
        if isinstance(blocks, Workload):
            settle(self, name=self.name or blocks.name)
            blocks = blocks.blocks
        listed = isinstance(blocks, tuple | list) and blocks and isinstance(blocks[0], tuple | list)
        if not (listed and blocks[0] and isinstance(blocks[0][0], Queries)):
            matrix = array("workload", blocks, ndim=2)
            blocks = ((Queries("matrix", matrix.shape[1], matrix),),)
        blocks = tuple(tuple(instance("workload", part, Queries) for part in block) for block in blocks)
        shapes = {tuple(part.size for part in block) for block in blocks}
        checks.refuse(len(shapes) != 1, "workload", sorted(shapes), "must have blocks of one shape")
        if (cells := math.prod(*shapes)) > _COUNTS:
            raise DesignError.of("workload", cells, f"must be on at most {_COUNTS} counts")
        settle(self, blocks=blocks)

    @classmethod
    def identity(cls, size: int) -> Workload:
        """Every count."""
        return cls(((Queries("identity", size),),), "all counts")

    @classmethod
    def prefix_sums(cls, size: int) -> Workload:
        """The sums of the first 1, 2, …, n counts: running totals."""
        return cls(((Queries("prefix", size),),), "prefix sums")

    @classmethod
    def ranges(cls, size: int) -> Workload:
        """The sums of all n(n + 1)/2 intervals of counts."""
        return cls(((Queries("ranges", size),),), "all ranges")

    @classmethod
    def marginals(
        cls, shape: Iterable[int], *, order: int | None = None, kept: Iterable[Iterable[int]] | None = None
    ) -> Workload:
        """Tables of counts by some of the attributes, summed over the others.

        Parameters
        ----------
        shape : sequence of int
            Values of each attribute.
        order : int, optional
            All tables of this many attributes.
        kept : sequence of sequences of int, optional
            Which attributes each table keeps; an empty one is the total.
        """
        held = listed("shape", shape, "must be a list of sizes, one an attribute")
        sizes = tuple(integer("shape", n, 1, 10**6) for n in held)
        allowed = "one of them must be given, not both, and a shape of at least one attribute"
        checks.refuse(not sizes or (order is None) == (kept is None), "order, kept", (order, kept), allowed)
        if kept is None:
            chosen = list(combinations(range(len(sizes)), integer("order", order, 0, len(sizes))))
            name = f"marginals of {order} of {len(sizes)} attributes"
        else:
            allowed = "must be lists of attributes, one per table"
            found = [listed("kept", table, allowed) for table in listed("kept", kept, allowed)]
            tables = [{integer("kept", i, 0, len(sizes) - 1) for i in table} for table in found]
            chosen, name = [tuple(sorted(table)) for table in tables], "marginals"
        checks.refuse(not chosen, "kept", kept, "must have a table")
        blocks = tuple(
            tuple(Queries("identity" if i in table else "total", n) for i, n in enumerate(sizes))
            for table in chosen
        )
        return cls(blocks, name)

    @classmethod
    def kron(cls, *parts: Workload | Numbers) -> Workload:
        """Return the Kronecker product: every combination of one query from each workload."""
        held = [workload_of("parts", part) for part in parts]
        checks.refuse(not held, "parts", parts, "must be at least one workload")
        blocks = tuple(sum(chosen, start=()) for chosen in product(*(p.blocks for p in held)))
        return cls(blocks, " × ".join(str(p.name or "matrix") for p in held))

    @classmethod
    def stack(cls, *parts: Workload | Numbers) -> Workload:
        """Stack the queries of several workloads on the same counts."""
        held = [workload_of("parts", part) for part in parts]
        if not held or len({p.size for p in held}) != 1:
            raise DesignError.of("parts", [p.size for p in held], "must be workloads on the same counts")
        if len({p.shape for p in held}) > 1:
            held = [cls(p.dense()) for p in held]
        return cls(tuple(b for p in held for b in p.blocks), " and ".join(p.name or "a matrix" for p in held))

    def __str__(self) -> str:
        return f"{self.count} queries on {self.size} counts" + (f": {self.name}" if self.name else "")

    @property
    def shape(self) -> tuple[int, ...]:
        """Values of each attribute; the last one changes fastest."""
        return tuple(part.size for part in self.blocks[0])

    def same(self, other: Workload) -> bool:
        """Whether another workload has the same name and the same blocks.

        Examples
        --------
        >>> Workload.identity(3).same(Workload.identity(3)), Workload.identity(3).same(Workload(np.eye(3)))
        (True, False)
        """
        own, others = self.blocks, other.blocks
        return (
            self.name == other.name
            and [len(block) for block in own] == [len(block) for block in others]
            and all(
                (a.kind, a.size) == (b.kind, b.size) and np.array_equal(a.matrix, b.matrix)
                for one, two in zip(own, others)
                for a, b in zip(one, two)
            )
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each part, block after block; a single one if the workload is neither a product nor a stack."""
        return tuple(part.kind for block in self.blocks for part in block)

    @property
    def size(self) -> int:
        """n, the number of counts."""
        return math.prod(self.shape)

    @property
    def count(self) -> int:
        """m, the number of queries."""
        return sum(math.prod(part.count for part in block) for block in self.blocks)

    @property
    def tabular(self) -> bool:
        """Whether all blocks are marginals: no permutation of an attribute's values changes the workload."""
        return all(part.kind in ("identity", "total") for block in self.blocks for part in block)

    @property
    def causal(self) -> bool:
        """Whether answer t depends on the first t counts alone, and there are as many answers as counts."""
        if len(self.blocks[0]) > 1 or len(self.blocks) > 1:
            return False
        part = self.blocks[0][0]
        if part.kind != "matrix":
            return part.kind in ("identity", "prefix")
        return part.count == part.size and not np.triu(part._rows, 1).any()

    def factors(self) -> tuple[Workload, ...]:
        """Workloads whose Kronecker product this is; a stack is its own only factor."""
        if len(self.blocks) > 1:
            return (self,)
        return tuple(Workload(((part,),)) for part in self.blocks[0])

    def check_square(self) -> None:
        """Raise DesignError if an n × n matrix on the n counts would be too large."""
        allowed = f"must be on at most {_SQUARE} counts where covariances are held in full"
        checks.refuse(self.size > _SQUARE, "workload", self.size, allowed)

    def gram(self) -> Array:
        """AᵀA, shape (n, n)."""
        self.check_square()
        return np.asarray(sum(reduce(np.kron, [part.gram() for part in block]) for block in self.blocks))

    def apply(self, x: Numbers) -> Array:
        """Return A x for counts x, shape (n,) or (n, k)."""
        held = answers("x", x)
        DataError.when(held.ndim not in (1, 2) or len(held) != self.size, f"x: must have {self.size} counts")
        rest = held.shape[1:]
        found = []
        for block in self.blocks:
            table = held.reshape(*self.shape, *rest)
            for axis, part in enumerate(block):
                table = np.moveaxis(part.apply(np.moveaxis(table, axis, 0)), 0, axis)
            found.append(table.reshape(-1, *rest))
        return np.concatenate(found)

    def dense(self) -> Array:
        """A, shape (m, n); refused if it is too large, except for prefix sums, whose root is A."""
        if self.kinds == ("prefix",):
            return self.root
        allowed = f"has a matrix of more than {_DENSE} entries: it is not formed"
        checks.refuse(self.count * self.size > _DENSE, "workload", str(self), allowed)
        return self.apply(np.eye(self.size))

    @cached_property
    def root(self) -> Array:
        """L, shape (r, n), with LᵀL = AᵀA and no zero direction: r is the rank."""
        self.check_square()
        if self.kinds == ("prefix",):
            return np.tri(self.size)
        if any(all(part.injective for part in block) for block in self.blocks):
            small = len(self.blocks) == 1 and self.count * self.size <= _DENSE
            if small and self.count <= 4 * self.size:
                # from A itself: the condition number of the Gram matrix is that of A squared
                return np.asarray(np.linalg.qr(self.dense(), mode="r"))
            gram = self.gram()
            scale = np.sqrt(np.diag(gram))
            return np.linalg.cholesky(gram / np.outer(scale, scale)).T * scale
        if self.tabular:
            return self._tabular_root()
        rows = self.dense()
        span = span_of(rows)
        return np.asarray(np.linalg.qr(rows[:, span.coordinates], mode="r") @ span.matrix.T)

    def _tabular_root(self) -> Array:
        """Root of a stack of marginals: scaled contrasts for each set of attributes that some table keeps."""
        kept = [
            {i for i, p in enumerate(block) if p.kind == "identity" or p.size == 1} for block in self.blocks
        ]
        rows, sizes = [], self.shape
        for chosen in product((False, True), repeat=len(sizes)):
            inside = {i for i, c in enumerate(chosen) if c}
            # a table that keeps them sums over the rest
            summed = [[n for i, n in enumerate(sizes) if i not in table] for table in kept if inside <= table]
            worth = sum(map(math.prod, summed))
            if worth and all(sizes[i] > 1 for i in inside):
                # Helmert's contrasts: an orthonormal basis of the vectors that sum to zero
                parts = [linalg.helmert(n) if c else np.full((1, n), n**-0.5) for n, c in zip(sizes, chosen)]
                rows.append(math.sqrt(worth) * reduce(np.kron, parts))
        return np.concatenate(rows)
