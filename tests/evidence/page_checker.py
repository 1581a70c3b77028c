"""The page's checker under Node, and what the two checkers say of the same files."""

from __future__ import annotations

import json
import select
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


class Node:
    """The page's checker, kept running for one text after the other; a context."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "judged.json"
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def judged(self, text: str, seconds: float) -> dict[str, Any] | None:
        """What it answers, with the processor seconds taken; None if that is nothing in so many seconds."""
        if self.process is None:
            words = [str(NODE), str(CHECKER / "node.mjs"), "--json"]
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.path.write_text(text, encoding="utf-8", errors="surrogatepass")
        self.process.stdin.write(f"{self.path}\n")
        self.process.stdin.flush()
        ready, *_ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.__exit__()
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer


def judged_by_node(texts: Sequence[str], folder: Path) -> list[Verdict]:
    """The verdicts of the page's checker."""
    found: list[Verdict] = []
    for answer in raw_verdicts(texts, folder):
        word = next((word for word in ("uncovered", "refused") if word in answer), "checked")
        found.append((word, [(r["claim"], r["how"], r["holds"]) for r in answer.get("rows", [])]))
    return found
