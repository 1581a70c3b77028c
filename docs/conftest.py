"""Guides are run as they are read: Python at the prompt by doctest, here what is typed in a shell, in a folder of its own.

A `code-block` of TOML or Python with a caption is written to the file that the caption names; the lines of a console
block that begin with ``$`` are run, and must succeed. ``# fails`` at the end of such a line says that it must not.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from mechdesign.choose import candidates

collect_ignore_glob = ["*.py"]  # the gallery runs when the pages are built
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob.append("*/pytorch.rst")
if importlib.util.find_spec("sklearn") is None:
    collect_ignore_glob.append("*/learning.rst")

VARIES = re.compile(r"(?<=, )[\d.e-]+(?= s$)|\b[0-9a-f]{64}\b", re.M)
"""What every run has anew: the seconds of a solver, and hashes."""
BLOCK = re.compile(r"^\.\. code-block:: (\w+)\n((?:   :\w+:.*\n)*)\n((?:(?:   .*)?\n)+)", re.M)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Examples write where they stand; tables are shown whole, and prints as wide as where there is no terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    known = {kind: dict(tried) for kind, tried in candidates._KNOWN.items()}
    with pd.option_context("display.width", 90, "display.max_columns", 12, "display.max_colwidth", 60):
        yield
    for kind, tried in known.items():  # what one page registers is not on the next
        candidates._KNOWN[kind].clear()
        candidates._KNOWN[kind].update(tried)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pages show one run whole; of another's seconds, hashes and digits after the fifth nothing is asked."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and Path(__file__).parent in item.path.parents:
            for example in item.dtest.examples:
                example.want = re.sub(r"\d+\.\d+", _first_digits, VARIES.sub("...", example.want))


def _first_digits(number: re.Match[str]) -> str:
    more = len(number[0].replace(".", "").lstrip("0")) - 5
    return number[0] if more <= 0 else number[0][:-more].rstrip(".") + "..."


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    """Guides that show a shell."""
    if file_path.suffix == ".rst" and ".. code-block:: console" in file_path.read_text(encoding="utf-8"):
        return Page.from_parent(parent, path=file_path)
    return None


class Page(pytest.File):
    """One page with commands."""

    def collect(self) -> Iterator[pytest.Item]:
        yield Shell.from_parent(self, name="shell")


class Shell(pytest.Item):
    """The commands of one page, in their order."""

    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            environment = {**os.environ, "PATH": path, "MPLBACKEND": "Agg", "COLUMNS": "80"}
            for language, options, body in BLOCK.findall(self.path.read_text(encoding="utf-8")):
                text = "\n".join(line[3:] for line in body.rstrip().split("\n")) + "\n"
                caption = re.search(r":caption: (\S+)", options)
                if caption:
                    (Path(folder) / caption[1]).write_text(text, encoding="utf-8")
                elif language == "console":
                    for line in re.findall(r"^\$ (.*)$", text, re.M):
                        command, _, fails = line.partition("  # fails")
                        done = subprocess.run(
                            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True
                        )
                        said = done.stdout + done.stderr
                        assert (done.returncode != 0) == bool(fails or line.endswith("# fails")), (
                            f"{line}\n{said}"
                        )
                        assert "Traceback" not in said, f"{line}\n{said}"

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: shell"
