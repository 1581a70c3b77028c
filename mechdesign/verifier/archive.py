"""All of the verifier in one file that Python runs: for a reviewer who does not want to install anything."""

from __future__ import annotations

import tempfile
import zipapp
from pathlib import Path


def build(path: str | Path) -> None:
    """Write the verifier as one executable archive.

    Parameters
    ----------
    path : str or Path
        Such as ``verify.pyz``; run it as ``python verify.pyz result.json``.

    Examples
    --------
    >>> import subprocess, sys
    >>> file = Path(tempfile.mkdtemp(), "verify.pyz")
    >>> build(file)
    >>> subprocess.run([sys.executable, "-I", "-S", file], capture_output=True).returncode  # no file is named
    1
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "mechdesign", "verifier")
        package.mkdir(parents=True)
        (package.parent / "__init__.py").write_text("")
        for source in Path(__file__).parent.glob("*.py"):
            (package / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
        Path(folder, "__main__.py").write_text((package / "__main__.py").read_text())
        zipapp.create_archive(folder, path, compressed=True)
