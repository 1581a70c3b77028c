"""Plant each fault in a copy of the package, and run the fast tests that should find it.

    python -m tests.planted [WORD ...]        # all faults, or those whose name contains a word

The faults are in the TOML files beside this one: a file of the package, a text that stands there once, what takes its
place, and the tests that find it. Exit status 1 if a fault is not found, or its text no longer stands where it was.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
COPIED = ("mechdesign", "studies", "tests", "docs", "results", "pyproject.toml", "README.md", "CHANGELOG.md")


def faults() -> dict[str, dict[str, str]]:
    """Every planted fault by name: ``file``, ``old``, ``new`` and ``tests``."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        found |= tomllib.loads(path.read_text(encoding="utf-8"))
    return found


def outcome(fault: dict[str, str], root: Path) -> str:
    """Plant a fault below a root, run its tests, take it out again: "found", or why not."""
    path = root / fault["file"]
    sound = path.read_text(encoding="utf-8")
    if (times := sound.count(fault["old"])) != 1:
        return f"its text stands {times} times in {fault['file']}, and not once"
    path.write_text(sound.replace(fault["old"], fault["new"]), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow"]
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            [*words, *fault["tests"].split()], cwd=root, env=environment, capture_output=True
        )
    finally:
        path.write_text(sound, encoding="utf-8")
    return "found" if ran.returncode == 1 else f"NOT FOUND (pytest ended with {ran.returncode})"


def main(words: list[str]) -> int:
    """Print an outcome a fault; the number of those that are not found."""
    chosen = {n: f for n, f in faults().items() if not words or any(word in n for word in words)}
    missed = 0
    with TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        (Path(folder) / "mechdesign_studies").symlink_to("studies/mechdesign_studies")
        for name, fault in chosen.items():
            said = outcome(fault, Path(folder))
            missed += said != "found"
            print(f"{name}: {said}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted faults found")
    return missed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
