"""Pages in a real browser: nothing complains, everything is seen, tables sort by mouse and keyboard, paper works.

Where there is no Chromium these tests say that they checked nothing.
"""

import gzip
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from browser import CHROMIUM, Browser, browser
from scipy import stats

import mechdesign as md
from mechdesign.evidence.page import Section, page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="NOT CHECKED: there is no Chromium here"),
]
WIDE = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
CUT = """JSON.stringify([...document.querySelectorAll('.scroll, .picture, pre, .facts div')]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 60)))"""
BOXES = """JSON.stringify([...document.querySelectorAll('figure img')].map(e => {
    const b = e.getBoundingClientRect(); return [b.width, b.height, e.naturalWidth]}))"""
CONTRAST = """(() => {
    const parse = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => { v /= 255;
        return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 });
    const light = c => { const [r, g, b] = parse(c); return .2126 * r + .7152 * g + .0722 * b };
    const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$/.test(c)) return c } return 'rgb(255, 255, 255)' };
    const bad = [];
    for (const e of document.body.querySelectorAll('*')) {
        if (e.closest('script') || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
        const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
        if ((a + .05) / (b + .05) < 4.5) bad.push(e.tagName + ' ' + e.textContent.slice(0, 30));
    }
    return JSON.stringify(bad) })()"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    uniform, folder = stats.uniform(-1, 2), tmp_path_factory.mktemp("pages")
    results = {
        "quantizer": md.OptimalQuantizer([-3, -0.5, 0.5, 3], md.PureDP(1.0), uniform).solve(),
        "many": md.OptimalQuantizer(np.linspace(-2, 2, 17), md.PureDP(2.0), uniform).solve(),
        "noise": md.calibrate("laplace", privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0),
        "channel": md.MetricChannel(md.MetricSpace.grid(3, 3), alpha=0.7).solve(),
        "plan": md.Plan(
            {
                "statistic of visits": md.Histogram(50),
                **{f"statistic of age {k}": md.Mean(0, 100, n=10_000) for k in range(3)},
                "statistic of spending": md.Sum(5.0),
            },
            md.ApproximateDP(1.0, 1e-6),
        ).solve(),
        "together": md.noise.KNorm(8, md.ApproximateDP(1.0, 1e-6)).solve(),
    }
    for name, result in results.items():
        result.report(folder / f"{name}.html")
        result.save(folder / f"{name}.json")
    return {name: folder / f"{name}.html" for name in results}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 412, 360])
@pytest.mark.parametrize("name", ["quantizer", "many", "noise", "channel", "plan", "together"])
def test_it_shows(tab: Browser, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    tab.open(pages[name], width=width, scheme=scheme)
    assert tab.complaints() == []
    asked = [url for url in tab.requests() if not url.startswith(("data:", "blob:"))]
    assert asked == [pages[name].as_uri()]
    assert tab.run(WIDE), "the page is wider than the screen"
    assert json.loads(tab.run(CUT)) == []
    boxes = json.loads(tab.run(BOXES))
    assert len(boxes) == 2  # the mechanism's picture, and what an attacker gains
    for across, high, drawn in boxes:
        assert across > 250 and high > 100 and drawn > 100
    assert json.loads(tab.run(CONTRAST)) == []


def test_tables_are_sorted_by_mouse_and_keyboard(tab: Browser, tmp_path: Path) -> None:
    frame = pd.DataFrame({"law": ["b", "c", "a"], "error": [10.0, 9.0, float("nan")]})
    (tmp_path / "t.html").write_text(page("t", [Section("s", table=frame)]))
    tab.open(tmp_path / "t.html")
    rows = "JSON.stringify([...document.querySelectorAll('tbody tr')].map(r => r.cells[0].textContent))"
    heads = "JSON.stringify([...document.querySelectorAll('thead th')].map(h => h.getAttribute('aria-sort')))"
    tab.run("document.querySelectorAll('thead button')[1].click()")
    assert json.loads(tab.run(rows)) == ["c", "b", "a"]  # as numbers, and what is missing last
    assert json.loads(tab.run(heads)) == ["none", "ascending"]
    tab.run("document.querySelectorAll('thead button')[1].click()")
    assert json.loads(tab.run(rows)) == ["b", "c", "a"]
    assert json.loads(tab.run(heads)) == ["none", "descending"]
    tab.run("document.querySelectorAll('thead button')[0].focus()")
    for kind in ("rawKeyDown", "char", "keyUp"):
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        tab.call("Input.dispatchKeyEvent", type=kind, **key)
    assert json.loads(tab.run(rows)) == ["a", "b", "c"]
    assert tab.complaints() == []


def test_everything_is_reached_by_keyboard_and_seen_there(tab: Browser, pages: dict[str, Path]) -> None:
    tab.open(pages["quantizer"])
    seen = []
    for _ in range(80):
        key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
        tab.call("Input.dispatchKeyEvent", type="rawKeyDown", **key)
        tab.call("Input.dispatchKeyEvent", type="keyUp", **key)
        where = tab.run("(e => e === document.body ? '' : e.tagName + ' ' + getComputedStyle(e).outlineStyle)"
                        "(document.activeElement)")  # fmt: skip
        if not where:
            break
        seen.append(where)
    assert {place.split()[0] for place in seen} == {"A", "DIV", "BUTTON", "PRE"}
    assert all(place.endswith("solid") for place in seen), seen


def test_a_hostile_page_runs_nothing(tab: Browser, tmp_path: Path) -> None:
    evil = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    frame = pd.DataFrame({evil: [evil, "b"]})
    section = Section(evil, f"{evil}\n\n- {evil}", frame, caption=evil, code=evil)
    (tmp_path / "t.html").write_text(page("safe", [section]))
    tab.open(tmp_path / "t.html")
    assert tab.run("document.title") == "safe" and tab.complaints() == []
    # And were one to get in, the page's own policy would stop it.
    text = (tmp_path / "t.html").read_text()
    (tmp_path / "u.html").write_text(text.replace("</main>", f"{evil}</main>"))
    tab.open(tmp_path / "u.html")
    assert tab.run("document.title") == "safe"
    assert any("Content Security Policy" in line for line in tab.complaints())


def test_it_prints(tab: Browser, pages: dict[str, Path]) -> None:
    tab.open(pages["quantizer"])
    data = tab.pdf()
    assert data.startswith(b"%PDF-")
    assert 2 <= data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") <= 8
    streams = data.split(b"stream\n")[1::2]
    assert any(_holds_drawing(stream) for stream in streams)
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.run("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"


def _holds_drawing(stream: bytes) -> bool:
    try:
        return zlib.decompress(stream.rsplit(b"\nendstream", 1)[0]).count(b" l\n") > 50
    except zlib.error:
        return False


def test_a_file_is_saved_without_scripts(tab: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(pages["quantizer"])
        tab.run("document.querySelector('a[download]').click()")
        until = time.monotonic() + 20
        while not (tmp_path / "result.json.gz").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert (
            gzip.decompress((tmp_path / "result.json.gz").read_bytes())
            == pages["quantizer"].with_suffix(".json").read_bytes()
        )
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
