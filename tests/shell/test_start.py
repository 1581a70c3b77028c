"""What the command line loads before a command runs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"pandas", "cvxpy", "scipy", "numpy", "matplotlib", "highspy", "mpmath", "joblib", "jinja2"}


def test_help_loads_no_scientific_library() -> None:
    code = "import sys; from mechdesign.shell.cli import main; sys.argv[1:] = ['--help']; main()"
    run = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in run.stderr.splitlines()}
    assert run.returncode == 0 and "typer" in loaded
    assert not loaded & HEAVY
