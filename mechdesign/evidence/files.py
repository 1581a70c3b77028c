"""Paths and whole files: what can be written is decided before any work, a file is written whole or not at all, read up to a limit, and locked."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from mechdesign.checks import refusing
from mechdesign.errors import DesignError, ResultFormatError
from mechdesign.verifier.reading import LIMIT, NotCovered, Refused, file_of


def file_path(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a Path, or raise DesignError if no file can have it.

    Examples
    --------
    >>> file_path("result.json").name
    'result.json'
    """
    allowed = "must be the path of a file: text without null characters, or a pathlib.Path"
    with refusing("path", path, allowed, TypeError, ValueError):
        if b"\0" in os.fsencode(path):
            raise ValueError("null character")
        return Path(path)


LEDGER = b'{"format": "mechdesign-ledger"'
"""How a ledger's file begins: nothing but a ledger writes to it."""


def check_writable(path: str | os.PathLike[str], name: str = "path", *, ledger: bool = False) -> Path:
    """Return the file that `path` leads to, or raise DesignError, before any work, if none can be written, or a ledger would be lost.

    Examples
    --------
    >>> check_writable("/nonexistent/a.json")
    Traceback (most recent call last):
        ...
    mechdesign.errors.DesignError: path = '/nonexistent/a.json': there is no folder /nonexistent: make it first
    """
    given = file_path(path)
    try:
        if given.exists() and not (given.is_file() or given.is_dir()):  # a terminal, a pipe
            return given
        target = Path(os.path.realpath(given))
        folder = target.parent
        if target.is_dir():
            reason = "is a folder: add the name of a file"
        elif not folder.is_dir():
            reason = (
                f"{folder} is no folder" if folder.exists() else f"there is no folder {folder}: make it first"
            )
        elif os.access(folder, os.W_OK | os.X_OK) and (not target.exists() or os.access(target, os.W_OK)):
            tempfile.TemporaryFile(
                prefix=f".{target.name[:50]}.", dir=folder
            ).close()  # permissions are not enough: /proc
            if ledger or not target.exists():
                return target
            with target.open("rb") as file:
                if file.read(len(LEDGER)) != LEDGER:
                    return target
            reason = "holds a ledger, which counts what was released: choose another path"
        else:
            reason = "you may not write there: choose another path"
    except OSError as error:  # a name too long, links in a circle, a full disk
        reason = f"cannot be written ({error.strerror}): choose another path"
    raise DesignError.of(name, str(path), reason)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file whole or not at all: to a temporary file in the same folder, then in its place.

    Raises
    ------
    DesignError
        `path` is not a path, or no file can be written there.
    OSError
        The disk is full, …; what was there before is still there.
    """
    target = check_writable(path)
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError as error:  # names the file that was asked for, not the temporary one
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def lasting(path: str | os.PathLike[str]) -> Path:
    """Return the path, or raise OSError if a device or a pipe is there: it keeps nothing, and what is read from it may not end."""
    found = file_path(path)
    if found.exists() and not (found.is_file() or found.is_dir()):
        raise OSError(errno.EINVAL, "not a file", str(path))
    return found


def whole_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file, with line ends as they are, or raise OSError if it is longer than the limit."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        text = file.read(LIMIT + 1)
    if len(text) > LIMIT:
        raise OSError(errno.EFBIG, f"more than {LIMIT} characters", str(path))
    return text


def number_of(text: str) -> float:
    """Read a number, or raise ValueError; 1_2 is none, which Python reads as 12.

    Examples
    --------
    >>> number_of(" 1e-3 ")
    0.001
    """
    if "_" in text:
        raise ValueError("an underscore")
    return float(text)


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a result file: as it is, compressed (.json.gz), or as a report page carries it."""
    name = file_path(path)
    try:
        with open(name, "rb") as file:
            return file_of(str(path), file.read(LIMIT + 1))[0]
    except FileNotFoundError:
        raise ResultFormatError(f"{path}: no such file") from None
    except (OSError, Refused, NotCovered) as error:
        raise ResultFormatError(f"{path}: cannot be read ({error})") from None


def lock(file: IO[bytes], *, on: bool = True, wait: bool = True) -> None:
    """Lock an open file against other programs, or release it; OSError if another holds it and `wait` is false."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(1 << 30)  # a byte beyond what is written, so that it can still be read
        while True:
            try:
                taken = msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK
                return msvcrt.locking(file.fileno(), taken if on else msvcrt.LK_UNLCK, 1)
            except PermissionError:  # held by another process, which `taken` may have awaited for ten seconds
                if not wait:
                    raise
    else:
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_EX if on else fcntl.LOCK_UN) | (0 if wait else fcntl.LOCK_NB))
