r"""The ledger: releases about one data set, in a file that only grows, and the rest of its budget.

**Composition.** Each release may be chosen in view of all earlier answers, so one additive currency is fixed when the ledger is
opened: pure ε, ρ of zCDP, or μ² of Gaussian differential privacy, whose sums bound the budget under adaptive choice
(Rogers, Roth, Ullman and Vadhan 2016; Feldman and Zrnic 2021; Koskela, Tobaben and Honkela 2022; Smith and Thakurta 2022).

A budget of (ε, δ) counts as the largest ρ that implies it. A single result may instead consume all of (ε, δ) by its own
certificate; a second one is admitted only if the ρ of all, including the first, is within that ρ, which is fixed before
either: one of the two arguments always holds.

**The file.** The first line states the budget, every other one a release, in JSON. A line ends with the SHA-256 of the hash before it and
of itself, so that a changed, missing or moved line is detected. A truncated end is detected by a hash known
from elsewhere, and every answer carries that of its own line. A line is on the disk before any noise is drawn; the operating system
releases the lock of a process that dies.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, get_args

import numpy as np
import pandas as pd
from flint import arb, ctx
from scipy import optimize

from mechdesign.checks import instance, one_of, read, refuse
from mechdesign.errors import DesignError, ResultFormatError
from mechdesign.evidence.digits import folded
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.files import LEDGER, check_writable, lasting, lock, write_whole
from mechdesign.evidence.page import Section, page
from mechdesign.evidence.proofs import CLAIMED, Claim
from mechdesign.evidence.results import Result
from mechdesign.evidence.sampling import before_noise
from mechdesign.evidence.serialize import decode, dumps, encode
from mechdesign.problem.privacy import (
    ApproximateDP,
    Consumption,
    GaussianDP,
    PureDP,
    ZeroConcentratedDP,
    guarantee,
)
from mechdesign.problem.spine import Design

_END = 72
"""Bytes at the end of a line that hold its hash."""
Budget = PureDP | ApproximateDP | ZeroConcentratedDP | GaussianDP
_NAMES = {"epsilon": "pure ε", "rho": "ρ", "mu": "μ²"}


@dataclass(frozen=True, eq=False)
class Released:
    """An answer that a ledger has counted.

    Attributes
    ----------
    answer : object
        Answer of the mechanism; ``released[name]`` is ``released.answer[name]``.
    entry, round : int
        Number of the ledger's entry, and of its round.
    hash : str
        Hash of its line, which a ledger that has lost the line does not contain.
    """

    answer: Any
    entry: int
    round: int
    hash: str

    def __getitem__(self, name: Any) -> Any:
        return self.answer[name]


@lru_cache(maxsize=8)  # results may be large
def _certified(result: Result) -> tuple[Claim, Consumption, str]:
    """Return the recomputed claim of privacy, the consumption, and the SHA-256 of the result's file."""
    certificate = instance("result", result, Result).certificate
    claim = None if certificate is None else certificate.privacy_claim()
    if claim is None or not claim.holds or claim.how == CLAIMED:
        reason = f"must be certified; {claim.claim + ' fails' if claim else 'solve it with certify=True'}"
        raise DesignError.of("result", type(result.design).__name__, reason)
    return claim, result.design.consumption(result), hashlib.sha256(dumps(result).encode()).hexdigest()


def consumption(result: Result) -> Consumption:
    """Return the consumption of a certified result, all rounds together, each number rounded up.

    Raises
    ------
    DesignError
        The result is not certified, its proof of privacy does not hold, or its answers are not about a whole data set.

    Examples
    --------
    >>> import mechdesign as md
    >>> noise = md.calibrate("gaussian", privacy=md.ApproximateDP(1, 1e-6), sensitivity=1)
    >>> found = consumption(noise)
    >>> found.epsilon, round(found.rho, 6), round(found.mu, 6)
    (inf, 0.028014, 0.236704)
    """
    return _certified(instance("result", result, Result))[1]


def concentrated(privacy: ApproximateDP) -> float:
    r"""Return the largest ρ, rounded down, whose zCDP implies (ε, δ).

    At every order α, :math:`\varepsilon = \rho\alpha + \log\frac{\alpha - 1}\alpha - \frac{\log\delta + \log\alpha}{\alpha - 1}` (Canonne, Kamath
    and Steinke 2020, Proposition 12). The order is searched in doubles; its ρ is enclosed in ball arithmetic.

    Examples
    --------
    >>> round(concentrated(ApproximateDP(1.0, 1e-6)), 7)
    0.024356
    """

    def proved(order: Any, number: Any, log: Any) -> Any:
        cost = log((order - 1) / order) - (log(number(privacy.delta)) + log(order)) / (order - 1)
        return (number(privacy.epsilon) - cost) / order

    best = optimize.minimize_scalar(
        lambda u: -proved(1 + math.exp(u), float, math.log),
        bounds=(-20, 40),
        method="bounded",
        options={"xatol": 1e-9},
    )
    with ctx.workprec(200):
        found = float(proved(1 + arb(float(best.x)).exp(), arb, arb.log).lower())
    return max(0.0, math.nextafter(found, -math.inf))


def worth(budget: Any) -> tuple[str, Fraction]:
    """Return the currency in which a ledger adds up, and the budget in it."""
    if isinstance(budget, GaussianDP):
        return "mu", Fraction(budget.mu) ** 2
    if isinstance(budget, ApproximateDP) and budget.delta:
        return "rho", Fraction(concentrated(budget))
    name = "rho" if isinstance(budget, ZeroConcentratedDP) else "epsilon"
    return name, Fraction(getattr(budget, name))


def _requirement(currency: str, amount: Fraction) -> Any:
    """Return the requirement for an amount of a currency, rounded down."""
    value = round_down(amount)
    if currency == "mu":
        return GaussianDP(math.nextafter(math.sqrt(value), 0.0))
    return PureDP(value) if currency == "epsilon" else ZeroConcentratedDP(value)


def kept_for_now(privacy: Any, reserve: float) -> Any:
    """Return the rest of a budget, rounded down, if a share of it, as a `Ledger` counts it, is reserved for later.

    Examples
    --------
    >>> kept_for_now(PureDP(1.0), 0.25)
    PureDP(epsilon=0.75)
    """
    refuse(not 0 < reserve < 1, "reserve", reserve, "must be a share of the budget: at least 0, below 1")
    allowed = f"must be 0 under {privacy}: state a budget in epsilon, rho or mu"
    refuse(not isinstance(privacy, get_args(Budget)), "reserve", reserve, allowed)
    currency, amount = worth(privacy)
    return _requirement(currency, (1 - Fraction(reserve)) * amount)


def kept_for_later(budget: Any, privacy: Any) -> str:
    """Say how much of a budget a plan under `privacy` leaves, as a ledger counts it.

    Examples
    --------
    >>> kept_for_later(PureDP(1.0), PureDP(0.75))
    'kept for what is asked later: 0.25 of 1 of pure ε, as a ledger of ε = 1 counts'
    """
    currency, amount = worth(_check_budget(budget))
    own, spent = worth(instance("privacy", privacy, *get_args(Budget)))
    if own != currency or spent > amount:
        raise DesignError.of("budget", budget, f"must be what a share is kept of: more than {privacy}")
    kept = f"{float(amount - spent):.6g} of {float(amount):.6g} of {_NAMES[currency]}"
    return f"kept for what is asked later: {kept}, as a ledger of {guarantee(budget)} counts"


class Ledger:
    """Record of the releases about one data set, and of the rest of its budget.

    Parameters
    ----------
    path : path
        The file, created if it does not exist; its name ends in ``.jsonl``, by custom.
    budget : PureDP, ApproximateDP, ZeroConcentratedDP or GaussianDP, optional
        Budget for all releases together; an existing file states it.

    Raises
    ------
    DesignError
        The budget differs from the file's, or is missing for a new one.
    ResultFormatError
        The file is no ledger, or was edited: the message names the line.

    Examples
    --------
    >>> import mechdesign as md, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ledger.jsonl"
    >>> ledger = md.Ledger(path, md.PureDP(1.0))
    >>> count = md.calibrate("discrete_laplace", privacy=md.PureDP(0.75), sensitivity=1)
    >>> released = count.release(1234, ledger=ledger)
    >>> released.entry, released.hash == ledger.hash
    (1, True)
    >>> round(md.Ledger(path).left().epsilon, 6)
    0.25
    >>> count.release(1235, ledger=ledger)
    Traceback (most recent call last):
        ...
    mechdesign.errors.DesignError: ledger = 'ledger.jsonl': has 0.25000000000000... of pure ε left, and this result needs 0.7499999999999...
    """

    def __init__(self, path: str | os.PathLike[str], budget: Any = None) -> None:
        self.path = check_writable(path, ledger=True)
        if budget is not None:
            _check_budget(budget)
        elif not (self.path.exists() and self.path.stat().st_size):
            raise DesignError(f"there is no ledger {path}: give its budget to open one")
        self.budget: Any = None
        self.hash, self._size, self._whole = "", 0, True
        self._entries, self._consumed, self._blocked, self._neighbours = 0, Fraction(0), False, ""
        self._rows: list[dict[str, Any]] = []
        self._drawn: dict[str, tuple[int, int, int]] = {}
        with _locked(self.path, "a+b") as file:
            self._refresh(file)
            if self.budget is None:
                head = {"format": "mechdesign-ledger", "version": 1, "budget": encode(_check_budget(budget))}
                self._append(file, head)
                with suppress(OSError):  # Windows opens no folders
                    folder = os.open(self.path.parent, os.O_RDONLY)
                    os.fsync(folder)
                    os.close(folder)
        if budget not in (None, self.budget):
            raise DesignError.of("budget", budget, f"is not that of the ledger: {self.budget}")

    # -- what is counted ---------------------------------------------------------------------------------

    def _amount(self, value: Any) -> Fraction | None:
        """Return a number in the currency in which the ledger adds up; None for none or infinity."""
        if value is None or value == math.inf:
            return None
        return Fraction(*value.as_integer_ratio()) ** (2 if self._currency == "mu" else 1)

    @property
    def _room(self) -> Fraction:
        return self._limit - self._consumed

    def left(self) -> Any:
        """Budget for the next result, rounded down, as a requirement in the currency; None if nothing is left."""
        self._sync()
        if not self._entries:
            return self.budget
        if self._blocked or round_down(self._room) <= 0:
            return None
        return _requirement(self._currency, self._room)

    # -- entries -----------------------------------------------------------------------------------------

    def release(self, result: Result, x: Any, *, disjoint: bool = False, **options: Any) -> Released:
        """Return the answer of `Result.release`, entered before any noise is drawn, after the true answer has been checked.

        One entry is one answer of the design's dimension. Several answers in one array are refused unless `disjoint` states that nobody is in
        two of them: the entry then states their number.

        Raises
        ------
        DesignError
            As in `charge`; several answers without `disjoint`, or under the replace relation.
        """
        consumption(result)
        one_of("disjoint", disjoint, (True, False))
        x, count = _read(result.design, x)
        allowed = 'needs neighbours="add-remove": a person who is replaced may move'
        refuse(disjoint and result.design.neighbours == "replace", "disjoint", True, allowed)
        if count != 1 and not (disjoint and count):
            remedy = "must be one answer of the design's dimension: release each alone, or all with disjoint=True if nobody is in two"
            raise DesignError(f"x: {remedy}")
        entered: list[Released] = []

        def enter() -> None:
            entered.append(self._enter(result, False, {"answers": count, "disjoint": disjoint}))

        with before_noise(enter):
            answer = result.mechanism.release(x, **options)
        if not entered:
            enter()
        return replace(entered[0], answer=answer)

    def charge(self, result: Result, *, whole: bool = False) -> Released:
        """Enter one release of a certified result that is made elsewhere (a stream, another engine), without an answer.

        The first round of a result is charged for all its rounds, the others for nothing; with `whole`, for releases that make all
        rounds at once, as a fit does, each entry is charged for all.

        Raises
        ------
        DesignError
            The result is not certified, exceeds the rest of the budget, or has no further round: nothing is entered.
        """
        return self._enter(result, whole, {"answers": 1, "disjoint": False})

    def _enter(self, result: Result, whole: bool, said: dict[str, Any]) -> Released:
        claim, consumes, file_hash = _certified(result)
        with _locked(self.path) as file:
            self._refresh(file)
            entry, drawn, rounds = (0, 0, 1) if whole else self._drawn.get(file_hash, (0, 0, 1))
            summary = getattr(result.mechanism, "summary", None)
            if rounds == 1:
                self._check(consumes)
                entry, drawn = self._entries + 1, 0
                rounds = 1 if whole else getattr(result.design, "rounds", 1)
            elif drawn == rounds:
                remedy = "have all been released: solve the design anew to reserve as many again"
                raise DesignError.of("rounds", rounds, remedy)
            line = {
                "entry": entry,
                "round": drawn + 1,
                "rounds": rounds,
                "design": type(result.design).__name__,
                "mechanism": summary() if summary else type(result.mechanism).__name__,
                "result": file_hash,
                "claim": claim.claim,
                "how": claim.how,
                **said,
            }
            if not drawn:
                line |= {key: None if v == math.inf else v for key, v in vars(consumes).items()}
            self._append(file, line)
            return Released(None, entry, drawn + 1, self.hash)

    def _check(self, consumes: Consumption) -> None:
        """Refuse a consumption that does not add up with the entries, or exceeds the rest of the budget."""
        consumed, name, others = getattr(consumes, self._currency), _NAMES[self._currency], self._neighbours
        amount, first = self._amount(consumed), self._several and not self._entries
        stated = consumes.statement
        alone = first and stated and stated[0] <= self.budget.epsilon and stated[1] <= self.budget.delta
        if others not in ("", consumes.neighbours):
            reason = f"protects neighbours by {others!r}, and this result by {consumes.neighbours!r}"
        elif self._blocked:
            reason = f"holds a result that has no {name}: it is certified for {self.budget} alone"
        elif alone or (amount is not None and amount <= self._room):
            return
        elif first:
            reason = f"allows {self.budget}, which the certificate of this result does not keep"
        elif amount is None:
            reason = f"adds up {name}, and none is proved of this result"
        else:
            need = round_up(amount)
            reason = f"has {max(round_down(self._room), 0.0)} of {name} left, and this result needs {need}; a result solved anew is a new entry: release the one that was saved; a plan's reserve= keeps a share for what is asked later"
        raise DesignError.of("ledger", self.path.name, reason)

    # -- the file ----------------------------------------------------------------------------------------

    def _sync(self) -> None:
        with _locked(self.path, "rb") as file:
            self._refresh(file)

    def _refresh(self, file: IO[bytes]) -> None:
        """Read lines appended since the last read, under the lock."""
        file.seek(max(self._size - _END, 0))
        if self._rows and self.hash.encode() not in file.read(min(self._size, _END)):
            fault = f"is without line {len(self._rows)}, which was there: cut off"
            raise ResultFormatError(f"{self.path.name}: {fault}")
        for line in file:
            whole = line.endswith(b"\n")
            try:
                content = _opened(line, self.hash)
                if content is None and not whole and (self._rows or LEDGER.startswith(line[: len(LEDGER)])):
                    return  # a write was interrupted: nothing was drawn
                if line.strip():
                    self._take(content)
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
                fault = "does not follow from the line before: edited, or no ledger"
                raise ResultFormatError(f"{self.path.name}, line {len(self._rows) + 1}: {fault}") from None
            self._size, self._whole = self._size + len(line), whole

    def _take(self, line: Any) -> None:
        if not self._rows:
            if (line["format"], str(line["version"])) != ("mechdesign-ledger", "1"):
                raise ValueError
            self.budget = budget = _check_budget(decode(line["budget"]))
            self._several = isinstance(budget, ApproximateDP) and budget.delta > 0
            self._currency, self._limit = worth(budget)
        else:
            entry, drawn, rounds = place = line["entry"], line["round"], line["rounds"]
            if drawn == 1:
                amount = self._amount(line[self._currency])
                if place != (self._entries + 1, 1, rounds) or (amount or 0) < 0:
                    raise ValueError
                self._entries, self._consumed = entry, self._consumed + (amount or 0)
                self._blocked = self._blocked or amount is None
                self._neighbours = self._neighbours or line["neighbours"]
            elif place != (entry, self._drawn[line["result"]][1] + 1, rounds):
                raise ValueError
            if not drawn <= rounds or {type(number) for number in place} != {int}:
                raise ValueError
            if rounds > 1:  # an entry for whole releases does not change the paid rounds
                self._drawn[line["result"]] = place
        self.hash = line["hash"]
        self._rows.append(line)

    def _append(self, file: IO[bytes], content: dict[str, Any]) -> None:
        """Write a line, and wait until it is on the disk."""
        content["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        body = json.dumps(content, ensure_ascii=False, allow_nan=False)[:-1].encode()
        line = b'%s, "hash": "%s"}\n' % (body, _chained(self.hash, body))
        file.truncate(self._size)  # remove the rest of an interrupted write
        file.seek(self._size)
        file.write(line if self._whole else b"\n" + line)
        file.flush()
        os.fsync(file.fileno())
        self._refresh(file)

    def __contains__(self, last: object) -> bool:
        """Whether a line has this hash, which an answer carries; False if the end was truncated since."""
        self._sync()
        return any(row["hash"] == last for row in self._rows)

    def to_frame(self) -> pd.DataFrame:
        """Return the releases, one per row."""
        self._sync()
        return pd.DataFrame(self._rows[1:])

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML page: the releases, the rest of the budget, and how to check that the file is complete."""
        words = (
            "Every line of the file ends with the SHA-256 of the hash before it and of itself, and a line that does not follow is "
            "refused. That the end was cut off shows against the hash that an answer carries: it must be in the list."
        )
        table = self.to_frame()
        part = Section("What was released", f"{self}\n\n{words}", table, rows=len(table))
        write_whole(path, page(f"Ledger of {self.budget}", [part], kind="mechdesign ledger"))

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, {self.budget!r})"

    def __str__(self) -> str:
        left = self.left()
        held = f"{self._entries} entries, {len(self._rows) - 1} releases"
        return folded(
            f"Ledger of {self.budget}: {held}\n  left: {left or 'nothing'}\n  last hash: {self.hash}"
        )


def _read(design: Design, x: Any) -> tuple[Any, int]:
    """Return the data to release, read once, and its number of answers of the design's dimension, 0 if that is no whole number."""
    if (size := design.answer_size) is None:
        return x, 1
    held = x if isinstance(x, int | float) else read("x", x)
    count, left = divmod(np.size(held), size)
    return held, 0 if left else count


@contextmanager
def _locked(path: Path, mode: str = "r+b") -> Iterator[IO[bytes]]:
    try:
        with open(lasting(path), mode) as file:
            lock(file)
            try:
                yield file
            finally:
                lock(file, on=False)
    except OSError as error:  # the file is gone, the disk is full, a device
        reason = f"cannot be read or written ({error.strerror}): nothing is released"
        raise DesignError.of("ledger", str(path), reason) from None


def _chained(before: str, body: bytes) -> bytes:
    return hashlib.sha256(before.encode() + body).hexdigest().encode()


def _opened(line: bytes, before: str) -> Any:
    """Return the content of a line; None if its hash does not follow from the hash before."""
    body, _, end = line.rstrip(b"\n").rpartition(b', "hash": "')
    return json.loads(line.decode()) if end == _chained(before, body) + b'"}' else None


def _check_budget(budget: Any) -> Any:
    instance("budget", budget, *get_args(Budget))
    refuse(getattr(budget, "xi", 0.0), "budget", budget, "must have xi = 0: a ledger adds up rho")
    return budget
