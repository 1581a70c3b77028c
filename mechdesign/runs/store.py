"""An append-only store of finished work: a killed run continues where it was.

One JSON line a finished chunk, in order, flushed to the disk before the next begins. A line cut off by a
kill is dropped at the next start, so the file always holds a prefix of what an uninterrupted run writes, and
ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from mechdesign.errors import ResultFormatError

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
        self.path = Path(path)
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
        self._header = (
            json.dumps({"store": 1, "definition": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
        )
        self.chunks: list[Any] = []
        self._recover()

    def _recover(self) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if not lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(self._header.encode())
            return
        if lines[0] + b"\n" != self._header.encode():
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
            with self.path.open("r+b") as file:
                file.truncate(len(whole))

    def append(self, rows: Any) -> None:
        """Add the next chunk, and make sure that it is on the disk."""
        line = json.dumps({"chunk": len(self.chunks), "rows": rows}, separators=(",", ":")) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self.chunks.append(rows)
