"""All of the verifier in one file that Python runs: for a reviewer who does not want to install anything.

    python -m mechdesign.verifier.archive verify.pyz

The file is the same to the last byte wherever it is made of the same sources, so that a reviewer can compare its checksum.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

SHEBANG = b"#!/usr/bin/env python3\n"
LONG_AGO = (1980, 1, 1, 0, 0, 0)


def build(path: str | Path) -> None:
    """Write the verifier as one executable archive.

    Parameters
    ----------
    path : str or Path
        Such as ``verify.pyz``; run it as ``python verify.pyz result.json``.

    Examples
    --------
    >>> import subprocess, sys, tempfile
    >>> file = Path(tempfile.mkdtemp(), "verify.pyz")
    >>> build(file)
    >>> subprocess.run([sys.executable, "-I", "-S", file], capture_output=True).returncode  # no file is named
    1
    """
    own = Path(__file__).parent
    members = {"mechdesign/__init__.py": "", "__main__.py": (own / "__main__.py").read_text(encoding="utf-8")}
    for source in (*sorted(own.glob("*.py")), own.with_name("evidence") / "kinds.json"):
        members[f"mechdesign/{source.parent.name}/{source.name}"] = source.read_text(encoding="utf-8")
    with open(path, "wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in members.items():
                archive.writestr(zipfile.ZipInfo(name, LONG_AGO), text, zipfile.ZIP_DEFLATED)
    Path(path).chmod(0o755)


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m mechdesign.verifier.archive", description=__doc__)
    parser.add_argument("file", help="the archive to be written, such as verify.pyz")
    build(parser.parse_args().file)
