"""An append-only store of finished work: a killed run continues where it was.

One JSON line a finished chunk, in order, flushed to the disk before the next begins. A line cut off by a
kill is dropped at the next start, so the file always holds a prefix of what an uninterrupted run writes, and
ends with the same bytes. A store is locked by its run, and a file that is none is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import IO, Any

from mechdesign.errors import DesignError, ResultFormatError
from mechdesign.evidence.whole_files import file_path

__all__ = ["Store"]


class Store:
    """Finished chunks of one search, in a JSON-lines file.

    Parameters
    ----------
    path : path
        Created if missing.
    definition : JSON-able
        What is being computed; a file written for another definition is refused.

    Attributes
    ----------
    chunks : list
        Results of chunks 0, 1, …, as far as they are done.
    """

    def __init__(self, path: str | os.PathLike[str], definition: Any) -> None:
        self.path = file_path(path)
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
        self._header = (
            json.dumps({"store": 1, "definition": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
        )
        self.chunks: list[Any] = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b")
        try:
            _lock(self._file)
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def _recover(self) -> None:
        self._file.seek(0)
        data, header = self._file.read(), self._header.encode()
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if not lines and header.startswith(data):  # new, or killed in its first line
            self._file.truncate(0)
            self._write(header)
            return
        if not lines or lines[0] + b"\n" != header:
            raise ResultFormatError(
                f"{self.path}: holds another search (or is not a store); use another file or delete it"
            )
        for number, line in enumerate(lines[1:]):
            try:
                record = json.loads(line)
                if record["chunk"] != number:
                    raise ValueError(f"chunk {record['chunk']} where {number} should be")
            except (ValueError, KeyError, TypeError) as error:
                raise ResultFormatError(f"{self.path}: line {number + 2} is damaged ({error})") from None
            self.chunks.append(record["rows"])
        if len(whole) < len(data):
            self._file.truncate(len(whole))

    def append(self, rows: Any) -> None:
        """Add the next chunk, and make sure that it is on the disk."""
        line = json.dumps({"chunk": len(self.chunks), "rows": rows}, separators=(",", ":")) + "\n"
        self._write(line.encode())
        self.chunks.append(rows)

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let another run have the file."""
        self._file.close()


def _lock(file: IO[bytes]) -> None:
    """Keep other runs away from an open file until it is closed; where the system has no such locks, trust."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DesignError(
            f"{file.name}: another run is writing this store; wait for it or use another file"
        ) from None
