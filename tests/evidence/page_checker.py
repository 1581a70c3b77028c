"""The page's checker under Node, and what the two checkers say of the same files."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mechdesign.evidence.page import CHECKER
from mechdesign.verifier import verify

NODE = shutil.which("node")

Verdict = tuple[str, list[tuple[str, str, bool]]]
"""A word, and claims, how each was checked, and whether it holds."""


def judged_by_python(text: str) -> Verdict:
    """The verdict of `mechdesign.verifier`."""
    try:
        rows = [(claim, how, bool(holds)) for claim, how, holds in verify.verify(text).rows]
    except verify.NotCovered:
        return "uncovered", []
    except (verify.Refused, ValueError, RecursionError):
        return "refused", []
    return "checked", rows


def raw_verdicts(texts: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """What one run of Node answers for each text."""
    assert NODE is not None
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(text, encoding="utf-8", errors="surrogatepass")
    run = subprocess.run(
        [NODE, str(CHECKER / "node.mjs"), "--json"],
        input="\n".join(map(str, paths)),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def judged_by_node(texts: Sequence[str], folder: Path) -> list[Verdict]:
    """The verdicts of the page's checker."""
    found: list[Verdict] = []
    for answer in raw_verdicts(texts, folder):
        word = next((word for word in ("uncovered", "refused") if word in answer), "checked")
        found.append((word, [(r["claim"], r["how"], r["holds"]) for r in answer.get("rows", [])]))
    return found
