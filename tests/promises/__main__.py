"""Run every script of this folder: ``python -m tests.promises [WORD ...]``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

for path in sorted(Path(__file__).parent.glob("a*.py")):
    if not sys.argv[1:] or any(word in path.stem for word in sys.argv[1:]):
        print(f"== {path.stem.replace('_', ' ')}")
        runpy.run_path(str(path), run_name="__main__")
