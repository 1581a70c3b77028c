"""Figures inside a page: SVG that takes the page's ink and font, says what it shows, and shares no name with another."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from mechdesign.plotting import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["inline_picture"]

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_BLACK = re.compile(r"(fill|stroke): (#000000|black)\b")
_FONT = re.compile(r"font: ([^;\"]*?)([\d.]+px)[^;\"]*")


def inline_picture(figure: Figure, prefix: str, title: str, description: str, *, longest: int) -> str:
    """Return markup for a figure: an SVG element, or an image of pixels where that would be too long.

    Parameters
    ----------
    prefix : str
        Put before every name in the drawing, so that two of them can stand on one page.
    title, description : str
        Read aloud where the figure is not seen.
    longest : int
        Characters; a longer drawing is embedded as pixels.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    if len(text) > longest:
        return _pixels(figure, description)
    root = ElementTree.fromstring(text[text.index("<svg") :])
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            element.set(key, _attribute(key, value, prefix))
    names = {tag: f"{prefix}{tag}" for tag in ("title", "desc")}
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        child = ElementTree.Element(f"{{{SVG}}}{tag}", {"id": names[tag]})
        child.text = words
        root.insert(place, child)
    root.set("role", "img")
    root.set("aria-labelledby", f"{names['title']} {names['desc']}")
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(key: str, value: str, prefix: str) -> str:
    if key == "id":
        return prefix + value
    if key == f"{{{XLINK}}}href" and value.startswith("#"):
        return f"#{prefix}{value[1:]}"
    value = value.replace("url(#", f"url(#{prefix}")
    if key == "style":
        return _FONT.sub(r"font-size: \2; font-family: inherit", _BLACK.sub(r"\1: currentColor", value))
    return value


def _pixels(figure: Figure, description: str) -> str:
    from markupsafe import escape
    from PIL import Image  # matplotlib brings it

    buffer, small = io.BytesIO(), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    Image.open(buffer).convert("RGB").quantize(96).save(small, "png", optimize=True)
    data = base64.b64encode(small.getvalue()).decode()
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'
