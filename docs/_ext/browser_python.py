"""Python for the browser beside the built pages: the npm package `pyodide`, unpacked, so that checker.html fetches from nowhere else.

Without npm or without network it is left out, and the page says where to get verify.pyz.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

PACKAGE = "pyodide@314.0.7"
SHA256 = "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0"
FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "python_stdlib.zip")
logger = logging.getLogger(__name__)


def unpack(app: Sphinx, failed: Exception | None) -> None:
    """Unpack it once."""
    folder = Path(app.outdir, "pyodide")
    npm = shutil.which("npm")
    if failed or app.builder.format != "html" or (folder / FILES[-1]).exists():
        return
    with tempfile.TemporaryDirectory() as work:
        fetch = [npm or "npm", "pack", "--silent", PACKAGE]
        if npm is None or subprocess.run(fetch, cwd=work, capture_output=True, timeout=120).returncode:
            logger.info("%s cannot be had here: checker.html says so", PACKAGE)
            return
        (packed,) = Path(work).glob("*.tgz")
        if hashlib.sha256(packed.read_bytes()).hexdigest() != SHA256:
            raise ValueError(f"{PACKAGE} is not what it was: look at it, then change its checksum here")
        folder.mkdir(exist_ok=True)
        with tarfile.open(packed) as archive:
            for name in FILES:
                source = archive.extractfile(f"package/{name}")
                assert source is not None
                data = source.read()
                if name.endswith(".wasm"):  # checker.js unpacks it
                    name, data = f"{name}.gz", gzip.compress(data, mtime=0)
                (folder / name).write_bytes(data)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("build-finished", unpack)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
