"""The page: structure that a screen reader and a printer can follow, and nothing of a stranger's text let in."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outline import Outline

from mechdesign.errors import DesignError
from mechdesign.evidence.digits import at_least, at_most
from mechdesign.evidence.page import Section, page
from mechdesign.plotting import figure

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}</style>'
DRAWN = {"g", "text", "tspan", "use", "path", "rect", "defs", "clippath"}


def drawing(label: str = "error"):
    fig, axis = figure(width=5.0, height=3.0)
    axis.plot([1, 2, 3], [1, 4, 2], label=label)
    axis.set(xlabel=label, ylabel="density")
    axis.legend()
    return fig


def everything(text: str) -> str:
    """A page with `text` wherever a page takes text."""
    table = pd.DataFrame({text: [text, "b"], "error": [2.0, math.nan], "how": ["proved", text]})
    section = Section(
        text, f"{text}\n\n- {text}", table, lambda: drawing(text), text, text, (text, text), text
    )
    loose = Section(
        text, f"**{text}** [x](javascript:alert(3)) ![y](http://a.b/c.png)\n\n# {text}", markdown=True
    )
    return page(text, [section, loose, section, loose], subtitle=text, kind=text, facts=[(text, text, text)])


def test_nothing_of_a_hostile_text_becomes_an_element() -> None:
    found, plain = Outline(everything(EVIL)), Outline(everything("plain"))
    # A long label leaves room for fewer ticks: what a drawing is made of may differ.
    assert [t for t, _ in found.elements if t not in DRAWN] == [
        t for t, _ in plain.elements if t not in DRAWN
    ]
    assert {tag for tag, _ in found.elements} == {tag for tag, _ in plain.elements}
    assert len(found.named("script")) == 1
    for _, attributes in found.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("src") or "data:").startswith("data:")
        assert (attributes.get("href") or "#").startswith(("#", "data:", "http://a.b/"))  # a link in Markdown


def test_the_policy_lets_only_this_script_run() -> None:
    text = page("t", [Section("s", "words")])
    policy = next(m["content"] for m in Outline(text).named("meta") if m.get("http-equiv"))
    assert policy is not None and "default-src 'none'" in policy
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "http" not in re.sub(r'(xmlns(:xlink)?="http://www.w3.org/[a-z0-9/]*"|http-equiv)', "", text)


def test_names_are_unique_and_references_lead_somewhere() -> None:
    found = Outline(everything("plain"))
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in found.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(name) or "").split()) <= set(ids)
        for value in attributes.values():
            targets = re.findall(r"url\(#([^)]*)\)", value or "")
            assert set(targets) <= set(ids)
        link = attributes.get("href") or attributes.get("xlink:href") or ""
        assert not link.startswith("#") or link[1:] in ids


def test_headings_tables_and_figures_can_be_read_aloud() -> None:
    found = Outline(everything("plain"))
    assert found.named("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in zip(levels, levels[1:]))
    assert len(found.named("caption")) == len(found.named("table"))
    assert all(head["scope"] in ("col", "row") for head in found.named("th"))
    drawings = found.named("svg")
    assert drawings and all(d["role"] == "img" and d["aria-labelledby"] for d in drawings)
    assert all(image["alt"] for image in found.named("img"))


def test_a_long_drawing_is_embedded_as_pixels() -> None:
    def many():
        fig, axis = figure()
        axis.plot(range(20_000), [k * k % 977 for k in range(20_000)], "o")
        return fig

    text = page("t", [Section("s", figure=many, alt=EVIL)])
    assert len(text) < 500_000 and [i["alt"] for i in Outline(text).named("img")] == [EVIL]


def test_a_long_table_is_cut_and_says_so(tmp_path) -> None:
    (tmp_path / "a.html").write_text(
        page("t", [Section("s", table=pd.DataFrame({"k": range(1000)}), rows=50)])
    )
    text = (tmp_path / "a.html").read_text()
    assert "950 further rows are not shown" in text and text.count("<tr>") == 51


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Section(3), "title = 3"),
        (lambda: Section("a", None), "text = None"),
        (lambda: Section("a", table=[1]), "table = \\[1\\]"),
        (lambda: Section("a", figure="b"), "figure = 'b'"),
        (lambda: Section("a", file="b"), "file = 'b'"),
        (lambda: page("a", ["b"]), "sections = 'b'"),
        (lambda: page(None, []), "title = None"),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        make()


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 15))
def test_rounding_stays_on_its_side(value: float, digits: int) -> None:
    low, high = Fraction(at_least(value, digits)), Fraction(at_most(value, digits))
    assert low <= Fraction(value) <= high
    assert abs(high - low) <= abs(Fraction(value)) * Fraction(10) ** (1 - digits) * 10
