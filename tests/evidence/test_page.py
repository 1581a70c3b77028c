"""The page: structure that a screen reader and a printer can follow, and nothing of a stranger's text let in."""

import base64
import dataclasses
import datetime
import gzip
import hashlib
import html
import math
import random
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outline import Outline

import mechdesign as md
from mechdesign.evidence import page as pages
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
    assert "http" not in re.sub("http-equiv", "", text)


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
    drawings = found.named("img")
    assert drawings and all(image["alt"] for image in drawings)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 15))
def test_rounding_stays_on_its_side(value: float, digits: int) -> None:
    low, high = Fraction(at_least(value, digits)), Fraction(at_most(value, digits))
    assert low <= Fraction(value) <= high
    assert abs(high - low) <= abs(Fraction(value)) * Fraction(10) ** (1 - digits) * 10


# -- The result file that a page carries: saved as it was written, never checked by the page, and said once to be left out where it is too large


def carried(text: str) -> bytes:
    """The file that the page's link saves, unpacked."""
    [link] = [a for a in Outline(text).named("a") if "download" in a]
    head, _, data = str(link["href"]).partition(",")
    assert (link["download"], head) == ("result.json.gz", "data:application/gzip;base64")
    return gzip.decompress(base64.b64decode(data, validate=True))


@pytest.mark.parametrize("name", ["optimal-quantizer", "noise-allocation"])
def test_the_link_saves_the_bytes_that_save_writes(name: str, tmp_path: Path) -> None:
    result: Any = cheap.solved(name)
    result.report(tmp_path / "page.html")
    result.save(tmp_path / "result.json")
    text, saved = (tmp_path / "page.html").read_text(), (tmp_path / "result.json").read_bytes()
    assert carried(text) == saved
    assert text.count(hashlib.sha256(saved).hexdigest()) == 1
    said = "".join(Outline(text).texts)
    assert "as computed by mechdesign" in said and "opening it checks nothing" in said
    assert said.count("result.json.gz") == 2  # the link, and the command that unpacks it


def test_a_page_of_a_quantizer_is_light_and_its_script_sorts_only(tmp_path: Path) -> None:
    cheap.solved("optimal-quantizer").report(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size <= 90_000
    script = (Path(pages.__file__).parent / "templates" / "page.js").read_text()
    found = Outline((tmp_path / "page.html").read_text())
    assert len(found.named("script")) == 1 and script in found.texts and script.count("\n") <= 40
    assert [p.name for p in Path(md.__file__).parent.rglob("*.*js")] == ["page.js"]


def test_a_file_that_is_too_large_is_said_once_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text = random.Random(0).randbytes(3000).hex()
    section = Section("Check it yourself", file=("result.json", text))
    assert carried(page("t", [section])) == text.encode()
    monkeypatch.setattr(pages, "LARGEST_FILE", 2999)
    without = page("t", [section])
    assert "download" not in without and without.count("does not carry") == 1
    assert without.count(hashlib.sha256(text.encode()).hexdigest()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("megabytes", "is_carried"), [(19, True), (25, False)])
def test_twenty_megabytes_are_carried(megabytes: int, is_carried: bool) -> None:
    text = base64.b64encode(random.Random(0).randbytes(megabytes * 1_000_000)).decode()  # gzip undoes that
    made = page("t", [Section("Check it yourself", file=("result.json", text))])
    assert ("download" in made) == is_carried and made.count("does not carry") == (not is_carried)
    assert not is_carried or carried(made) == text.encode()


# -- The page of every kind of result: complete, light, correct to read aloud, and true to its result --------

UNIFORM = cheap.UNIFORM
NAMES = [
    "optimal-quantizer", "optm", "rqm", "metric-quantizer", "biased-selection", "optm-search", "calibration", "optimal-integer-noise",
    "optimal-noise", "noise-allocation", "correlated-gaussian", "metric-channel",
]  # fmt: skip
LARGE: dict[str, Callable[[], Any]] = {
    "many outputs": lambda: md.OptimalQuantizer(np.linspace(-2, 2, 33), md.PureDP(3.0), UNIFORM),
    "large allocation": lambda: md.NoiseAllocation("laplace", np.linspace(1, 9, 500), md.PureDP(1.0)),
}
kinds = pytest.mark.parametrize("name", [*NAMES, *LARGE])


@cache
def made(name: str) -> Any:
    return LARGE[name]().solve() if name in LARGE else cheap.solved(name)


@pytest.mark.slow
@kinds
def test_every_kind_of_result_has_a_page(name: str, tmp_path: Path) -> None:
    result = made(name)
    result.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    found = Outline(text)
    assert len(text.encode()) < 500_000
    words = "".join(found.texts)
    assert len(found.named("img")) == 2
    for claim in result.checks()["claim"]:
        assert claim in words
    titles = [s.title for s in result.sections() if s.title]
    assert titles[:3] == ["What was asked", "The mechanism", "What an attacker gains"]
    assert "Check it yourself" in titles
    assert "unit of privacy" in words and "verify.pyz" in words and "scipy" in words
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


SAID = {
    "dataset": "visits <2026> & more",
    "author": "A. Turing\n- proved: yes",
    "purpose": "</section><script>x</script>",
}


@pytest.mark.parametrize("name", ["result", pytest.param("comparison", marks=pytest.mark.slow)])
def test_a_page_repeats_what_its_author_says_and_no_file_holds_it(name: str, tmp_path: Path) -> None:
    handed: Any = {
        "result": lambda: made("calibration"),
        "comparison": lambda: md.compare(
            md.NumericQuery(), md.PureDP(1.0), mechanisms=["laplace", "staircase"]
        ),
    }[name]()
    handed.report(plain := tmp_path / "plain.html")
    assert "Said by whoever" not in plain.read_text()
    handed.report(page := tmp_path / "page.html", date="2026-11-23", **SAID)
    text = page.read_text()
    words = " ".join("".join(Outline(text).texts).split())
    for key, told in SAID.items():
        assert f"{'data set' if key == 'dataset' else key}: {' '.join(told.split())}" in words
    assert "visits &lt;2026&gt; &amp; more" in text and "<script>x" not in text
    assert "date: 2026-11-23" in words and "no file holds it, and nothing below proves it" in words.lower()
    assert text.count("<section") == plain.read_text().count("<section") + 1
    handed.save(file := tmp_path / "held.json")
    assert "2026" not in file.read_text()
    handed.report(page, author="A. Turing")
    assert f"date: {datetime.date.today()}" in page.read_text()


@kinds
def test_the_alternatives_are_no_better_than_what_is_proved(name: str) -> None:
    """A rival below the proved least of what contains it would be a contradiction on one page."""
    result = made(name)
    table = result.alternatives()
    assert list(table.columns) == ["mechanism", "error", "relative"]
    if len(table):
        assert table["error"].iloc[0] == pytest.approx(result.value) and (table["error"] > 0).all()
    if name in (
        "optimal-noise",
        "noise-allocation",
        "large allocation",
        "correlated-gaussian",
        "metric-channel",
    ):
        assert result.lower_bound is not None
        assert (table["error"] >= result.lower_bound * (1 - 1e-12)).all() and len(table) >= 2


def test_a_result_without_a_certificate_says_so(tmp_path: Path) -> None:
    result = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve(certify=False)
    result.report(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert 'class="no"' in text and "Warning" in text and "do not deploy" in text
    assert (
        "innocents finds at most" not in text
    )  # what an attacker gains from such a law is not what was asked


# -- What a page says of the mechanism in numbers and sentences: its table, its prior, its privacy, and between which inputs


SPACE = md.MetricSpace.geodesic(
    [52.520, 52.530, 52.505], [13.405, 13.385, 13.440], names=["Mitte", "Wedding", "Kreuzberg"]
)


def words_of(result: Any, path: Path) -> str:
    """Its words, without markup; numbers of tables by their full digits."""
    result.report(path / "page.html")
    text = html.unescape((path / "page.html").read_text(encoding="utf-8"))
    cells = re.sub(r'<td[^>]*data-value="([^"]*)"[^>]*>[^<]*', r" \1 ", text)
    return " ".join(
        re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", cells, flags=re.S)).split()
    )


@pytest.mark.parametrize("own", [False, True])
def test_a_channel_shows_its_table_its_prior_and_between_whom_privacy_is(own: bool, tmp_path: Path) -> None:
    design = md.MetricChannel(SPACE, alpha=1.0, prior=[0.5, 0.3, 0.2])
    capped = design.problem()
    result = (capped.subject_to(capped.unknown[:, 0] <= 0.6) if own else design).solve()
    said, law = words_of(result, tmp_path), result.mechanism
    for p in np.ravel(law.probabilities if own else law.matrix).tolist():
        assert f" {p!r} " in said
    assert "the prior (0.5, 0.3, 0.2)" in said and "times likelier" in said and "per km" in said
    assert "between any two inputs, the two that are farthest apart too" in said
    if own:
        assert "Metric differential privacy with α = 1 per km: for any two inputs" in said
        assert "Each person holds one of the inputs and sends one of the outputs" in said


def test_a_table_under_one_epsilon_speaks_of_no_distance(tmp_path: Path) -> None:
    for of, who in (("person", "Each person holds"), ("data", "The input is a statistic of a data set")):
        P = md.Table([0, 1, 2], [0, 1, 2], of=of)
        result = md.Problem(md.Minimize(P.expected("absolute")), [P.private(md.PureDP(1.0))]).solve()
        said = words_of(result, tmp_path)
        assert who in said and "farthest apart" not in said
        assert "ε-differential privacy with ε = 1: for any two inputs, no answer" in said


def test_a_headline_says_which_way_it_is_rounded(tmp_path: Path) -> None:
    result = md.NoiseAllocation("gaussian", [1.0, 2.0, 0.5], md.ApproximateDP(1.0, 1e-6)).solve()
    result = dataclasses.replace(result, value=result.value + 1e-12)
    said = words_of(result, tmp_path)
    assert "(rounded up)" in said and "(rounded down)" in said
