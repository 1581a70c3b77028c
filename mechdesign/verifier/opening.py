"""Take the text of a result file out of what was sent: the file itself, compressed or not, or a report page that carries it."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import re
import zlib

from mechdesign.verifier.reading import Refused, TooLarge

LARGEST = 64 * 2**20
FILE = re.compile(r'href="data:application/gzip;base64,([A-Za-z0-9+/=]*)"')


def file_of(name: str, data: bytes) -> tuple[str, str | None]:
    """The text of a result file, and the page that carried it, if one did; Refused or TooLarge says in a sentence why there is none."""
    if data[:2] in (b"\x89P", b"\xff\xd8", b"GI") or data[:4] == b"%PDF":
        raise Refused(
            f"{name} is a picture or a printed page: give the result file or the report page itself"
        )
    if data[:2] == b"\x1f\x8b":
        data = unpacked(name, data)
    text = read(name, data)
    if "<html" not in text[:2000].lower():
        return text, None
    carried = FILE.search(text)
    if carried is None:
        raise Refused(f"{name} is a page that carries no result file: ask whoever sent it for the file")
    try:
        packed = base64.b64decode(carried[1], validate=True)
    except (binascii.Error, ValueError):
        raise Refused(f"{name} carries a file that is damaged") from None
    return read(name, unpacked(name, packed)), text


def read(name: str, data: bytes) -> str:
    """The text of no more than is checked."""
    if len(data) > LARGEST:
        raise TooLarge(f"{name} holds more than 64 MiB: so much is not checked")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{name} is no text: give a result file (JSON) or a report page (HTML)") from None


def unpacked(name: str, packed: bytes) -> bytes:
    """The content of a gzip file, little more of it than is checked."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            return file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error):
        raise Refused(f"{name} holds a file that is damaged") from None
