"""What the checker page says, in Python: it runs in the browser, on verify.pyz, and its tests run it outside.

A result file, or the one that a report page carries, is read by the stand-alone verifier. Of a page every visible number is held
against the file too: the headline by its meaning, all others by whether the file has such a number.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, ClassVar

from mechdesign.verifier.reading import NotCovered, Refused, file_of
from mechdesign.verifier.verify import verify

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w%]|\.\d)")
STATED = re.compile(r"([εδραμ])\s*=\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
NAMES = {"ε": "epsilon", "δ": "delta", "ρ": "rho", "α": "alpha", "μ": "mu"}
SILENT = {"script", "style", "svg", "title", "pre", "code"}
UNCOMPARED = {"What it is for", "What made this page"}


class Seen(HTMLParser):
    """What a reader sees of a report page: the headline by its labels, and every other text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.facts: dict[str, str] = {}
        self.title = ""
        self.texts: list[str] = []
        self.cells: list[tuple[str, str]] = []
        self._open: list[str] = []
        self._label, self._class, self._cell, self._words, self._skipped = "", "", "", "", False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag not in ("meta", "link", "br", "img", "path", "input"):
            self._open.append(tag)
        if tag in ("dt", "dd", "td", "th", "p", "li", "h1", "h2", "caption", "figcaption"):
            self._words, self._class, self._cell = "", given.get("class", ""), given.get("data-value", "")

    def handle_data(self, data: str) -> None:
        if not SILENT & set(self._open):
            self._words += data

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass
        words = " ".join(self._words.replace("\u00a0", " ").split())
        if tag in ("h2", "caption"):
            self._skipped = words in UNCOMPARED
        if tag == "h1":
            self.title = words
        if tag == "dt":
            self._label = words
        elif tag == "dd" and self._class == "value":
            self.facts[self._label] = words
        elif tag in ("td", "th") and self._cell:
            self.cells.append((words, self._cell))
        elif tag in ("dd", "td", "th", "p", "li", "h1", "caption", "figcaption") and not self._skipped:
            self.texts.append(words)


def numbers(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Every number of a file, with its place."""
    if isinstance(node, dict):
        for key, child in node.items():
            yield from numbers(child, (*place, key))
    elif isinstance(node, list):
        for k, child in enumerate(node):
            yield from numbers(child, (*place, k))
    elif isinstance(node, (int, float)) and not isinstance(node, bool):
        yield place, float(node) if abs(node) < 1e300 else math.inf


def rounds_to(shown: str, number: float, up: int = 0) -> bool:
    """Whether a number is shown so: rounded up (1), down (-1), or to the nearest (0)."""
    digits, _, power = shown.partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2])) * (1 + 1e-6)
    over = float(shown) - number
    return -1e-4 * unit <= up * over <= unit if up else abs(over) <= unit / 2


def compared(page: str, payload: Any) -> tuple[list[str], list[str]]:
    """Sentences about visible numbers that differ from the file, and numbers of which it says nothing."""
    seen, fields = Seen(page), payload.get("fields", {})
    known = [number for _, number in numbers(payload)]
    differ, unknown = [], []
    value, bound = fields.get("value"), fields.get("lower_bound")
    both = isinstance(value, float) and isinstance(bound, float) and value > 0
    gap = max(0.0, value - bound) / value if both else 0.0
    far = 0.5 < gap < 1  # then neither bound nor gap is in the headline
    for label, stated, up in (("Error", value, 1), ("Lower bound", bound, -1)):
        said = seen.facts.get(label, "")
        if far and up < 0:
            if said != "not near" or "Gap" in seen.facts:
                differ.append(f"Lower bound: the page shows {said or 'nothing'}, the file's is not near")
            continue
        kept = NUMBER.fullmatch(said) is not None
        if isinstance(stated, float) and math.isfinite(stated) and not (kept and rounds_to(said, stated, up)):
            differ.append(f"{label}: the page shows {said or 'nothing'}, the file has {stated!r}")
    if both and not far:
        said = seen.facts.get("Gap", "")
        least = said == ("below 1e-07%" if gap else "0%")
        number = said.endswith("%") and NUMBER.fullmatch(said[:-1]) is not None
        if not (least if gap < 1e-9 else number and rounds_to(said[:-1], 100 * gap, 1)):
            differ.append(f"Gap: the page shows {said or 'none'}, the file's numbers have {100 * gap:.3g}%")
    status = fields.get("solver_report", {}).get("fields", {}).get("status")
    if isinstance(status, str) and seen.facts.get("Status") != status:
        differ.append(f"Status: the page shows {seen.facts.get('Status')}, the file has {status}")
    asked = {
        letter: [n for place, n in numbers(payload) if place[-1] == name or name in place]
        for letter, name in NAMES.items()
    }
    headline = f"{seen.title} ; {seen.facts.get('Privacy', '')}"
    for letter, shown in STATED.findall(headline):
        if asked[letter] and not any(rounds_to(shown, n) for n in asked[letter]) and float(shown):
            differ.append(f"Privacy: the page shows {letter} = {shown}, the file has {asked[letter][0]!r}")
    if any(asked.values()) and not STATED.search(headline):
        differ.append("Privacy: the page shows none, the file has one")
    for shown, held in seen.cells:
        if NUMBER.fullmatch(shown) and not rounds_to(shown, float(held)):
            differ.append(f"a table shows {shown} where the page itself holds {held}")
    for text in (*seen.texts, *(shown for shown, _ in seen.cells)):
        for found in NUMBER.finditer(text):
            shown = found[0]
            letter = text[: found.start()].rstrip(" =")[-1:]
            among = asked.get(letter) or known
            worth = "." in shown or "e" in shown or letter in NAMES
            if worth and float(shown) and not any(rounds_to(shown, n) for n in among):
                unknown.append(f"{shown} in “{text[max(0, found.start() - 40) : found.end() + 20]}”")
    return differ, list(dict.fromkeys(unknown))


def resealed(document: Any) -> str:
    """The text of a file with a new checksum, as a forger would write it."""
    payload = json.dumps(document["payload"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return json.dumps(
        {**document, "sha256": hashlib.sha256(payload.encode()).hexdigest()}, ensure_ascii=False
    )


def changed(text: str, place: tuple[Any, ...], number: str) -> str:
    """The file with another number at a place."""
    document = json.loads(text)
    node = document["payload"]
    for step in place[:-1]:
        node = node[step]
    node[place[-1]] = json.loads(number)
    return resealed(document)


def places(text: str) -> list[tuple[tuple[Any, ...], str]]:
    """What a reader may change: value and lower bound first, then the other numbers in their order."""
    payload = json.loads(text)["payload"]
    found = [place for place, _ in numbers(payload)]
    found.sort(key=lambda p: (p != ("fields", "value"), p != ("fields", "lower_bound")))
    return [
        (p, ".".join(str(s) for s in p if str(s).lstrip("$") not in ("fields", "tuple", "array", "items")))
        for p in found[:300]
    ]


def at(text: str, place: tuple[Any, ...]) -> str:
    """The number at a place, as the file has it."""
    node = json.loads(text)["payload"]
    for step in place:
        node = node[step]
    return json.dumps(node)


def account(text: str) -> str:
    """Every claim of a file, in HTML."""
    begun = time.perf_counter()
    try:
        found = verify(text)
    except NotCovered as error:
        return f'<p class="verdict">{html.escape(error.said)}</p>'
    except Refused as error:
        return f'<p class="verdict fails">Refused: {html.escape(str(error))}.</p>'
    rows = sorted(found.rows, key=lambda row: row[2])
    seconds = time.perf_counter() - begun
    fails = any(not holds for *_, holds in rows)
    said = f'<p class="verdict {"fails" if fails else "holds"}">{html.escape(found.summary())}, in {seconds:.2f} s.</p>'
    said += "<table><thead><tr><th>holds</th><th>how</th><th>claim</th><th>margin</th></tr></thead><tbody>"
    for claim, how, holds in rows:
        said += f'<tr class="{"" if holds else "fails"}"><td>{"yes" if holds else "NO"}</td><td>{how}</td>'
        said += f"<td>{html.escape(claim)}</td><td>{found.margin(claim, how)}</td></tr>"
    return said + "</tbody></table>"


def of_page(page: str | None, text: str) -> str:
    """What a page shows beside what its file says, in HTML."""
    if page is None:
        return ""
    try:
        payload = json.loads(text)["payload"]
        differ, unknown = compared(page, payload)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return '<p class="verdict fails">The page carries a file that cannot be compared with it.</p>'
    if hashlib.sha256(text.encode()).hexdigest() not in page:
        differ.insert(0, "the fingerprint that the page shows is not that of the file it carries")
    items = "".join(f"<li>{html.escape(line)}</li>" for line in differ)
    said = (
        f'<p class="verdict fails">The page shows what its file does not say:</p><ul>{items}</ul>'
        if differ
        else '<p class="verdict holds">The headline of the page is what its file says.</p>'
    )
    if unknown:
        rest = "".join(f"<li>{html.escape(line)}</li>" for line in unknown[:100])
        said += f"<details><summary>{len(unknown)} further numbers of the page are not in the file: whoever made the page computed them, and nothing here checks them</summary><ul>{rest}</ul></details>"
    return said


class Held:
    """The file that is open."""

    text: ClassVar[str] = ""
    places: ClassVar[list[tuple[tuple[Any, ...], str]]] = []


def opened(name: str, data: Any) -> str:
    """Check what was dropped, and say so in HTML; remember the file for changes."""
    Held.text, Held.places = "", []
    try:
        text, page = file_of(name, bytes(data.to_py() if hasattr(data, "to_py") else data))
    except (NotCovered, Refused) as error:
        return f'<p class="verdict fails">{html.escape(str(error))}.</p>'
    said = f"<h2>{html.escape(name)}</h2>" + of_page(page, text) + account(text)
    try:
        Held.text, Held.places = text, places(text)
    except (ValueError, KeyError, TypeError, RecursionError):
        return said
    return said


def choices() -> str:
    """The numbers that may be changed, as options."""
    return "".join(
        f'<option value="{k}">{html.escape(name)}</option>' for k, (_, name) in enumerate(Held.places)
    )


def number(k: int) -> str:
    """The k-th of them, as the file has it."""
    return at(Held.text, Held.places[k][0]) if Held.places else ""


def with_change(k: int, written: str) -> str:
    """Check the file with another number at the k-th place."""
    try:
        if not isinstance(json.loads(written), (int, float)):
            raise ValueError
        return account(changed(Held.text, Held.places[k][0], written))
    except ValueError:
        return f'<p class="verdict fails">{html.escape(written[:40])} is no number.</p>'
