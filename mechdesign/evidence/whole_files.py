"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mechdesign.errors import DesignError

__all__ = ["file_path", "write_whole"]


def file_path(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a Path, or raise DesignError where no file can have it.

    Examples
    --------
    >>> file_path("result.json").name
    'result.json'
    """
    try:
        if b"\0" in os.fsencode(path):
            raise ValueError("null character")
        return Path(path)
    except (TypeError, ValueError) as error:
        raise DesignError.of("path", path, f"must be the path of a file ({error})") from None


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file whole or not at all: beside it, then in its place.

    Raises
    ------
    DesignError
        `path` is none.
    OSError
        It cannot be written; what was there before is still there.
    """
    target = Path(os.path.realpath(file_path(path)))
    if target.exists() and not target.is_file():  # a terminal, a pipe
        target.write_text(text, encoding="utf-8")
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
