"""Pages in a real browser: nothing complains, everything is seen, tables sort by mouse and keyboard, paper works.

Where there is no Chromium these tests say that they checked nothing.
"""

from __future__ import annotations

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

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="NOT CHECKED: there is no Chromium here, so no page was shown in a browser"
)
WIDE = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
BOXES = """JSON.stringify([...document.querySelectorAll('figure svg, figure img')].map(e => {
    const b = e.getBoundingClientRect(); return [b.width, b.height, e.querySelectorAll('path').length]}))"""
CONTRAST = """(() => {
    const parse = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => { v /= 255;
        return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 });
    const light = c => { const [r, g, b] = parse(c); return .2126 * r + .7152 * g + .0722 * b };
    const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$/.test(c)) return c } return 'rgb(255, 255, 255)' };
    const bad = [];
    for (const e of document.body.querySelectorAll('*')) {
        if (e.closest('svg, script') || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
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
        "together": md.noise.KNorm(8, md.ApproximateDP(1.0, 1e-6)).solve(),
    }
    for name, result in results.items():
        result.report(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in results}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 412, 360])
@pytest.mark.parametrize("name", ["quantizer", "many", "noise", "channel", "together"])
def test_it_shows(tab: Browser, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    tab.open(pages[name], width=width, scheme=scheme)
    assert tab.complaints() == []
    asked = [url for url in tab.requests() if not url.startswith(("data:", "blob:"))]
    assert asked == [pages[name].as_uri()]
    assert tab.run(WIDE), "the page is wider than the screen"
    boxes = json.loads(tab.run(BOXES))
    assert len(boxes) == 2  # the mechanism's picture, and what an attacker gains
    for across, high, paths in boxes:
        assert across > 250 and high > 150 and (paths > 5 or paths == 0)
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
    assert {place.split()[0] for place in seen} == {"A", "DIV", "BUTTON", "PRE", "SUMMARY"}
    assert all(place.endswith("solid") for place in seen), seen


def test_the_accessibility_tree_names_figures_and_tables(tab: Browser, pages: dict[str, Path]) -> None:
    tab.open(pages["quantizer"])
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            role = node["role"]["value"]
            roles.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    pictures = [n for role in ("image", "img", "SvgRoot") for n in roles.get(role, [])]
    assert pictures and all(pictures)
    assert all(roles["table"]) and all(roles["heading"]) and roles["main"] is not None
    assert "columnheader" in roles and "rowheader" in roles


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


def wait_for_verdict(tab: Browser) -> str:
    """What the page says of its file, once it has checked it."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        said = str(tab.run("document.querySelector('.verdict').textContent"))
        if said and not said.startswith(("Being checked", "Nothing was checked here: the script")):
            return said
        time.sleep(0.05)
    raise TimeoutError("the page does not say what it found")


CLAIMS = """JSON.stringify([...document.querySelectorAll('.check tbody tr')].map(r => [...r.cells].map(c => c.textContent)))"""
EDIT = """(() => { const box = document.querySelector('.box'), area = box.querySelector('textarea'); box.open = true;
    const look = box.querySelector('input[type=search]'); look.value = %s; box.querySelector('button').click();
    const before = area.value; area.value = before.replace(%s, %s);
    box.querySelector('input[type=checkbox]').checked = %s;
    document.querySelector('.verdict').textContent = '';
    [...box.querySelectorAll('button')].find(b => b.textContent.startsWith('Check')).click(); return area.value !== before })()"""


def edited(tab: Browser, text: str, other: str, seal: bool = True) -> str:
    """What the page says once this place of the file is another."""
    assert tab.run(EDIT % (json.dumps(text), json.dumps(text), json.dumps(other), json.dumps(seal)))
    return wait_for_verdict(tab)


def test_a_page_checks_its_file_and_a_changed_one(tab: Browser, pages: dict[str, Path]) -> None:
    tab.open(pages["quantizer"])
    assert "all 4 claims hold (4 proved)" in wait_for_verdict(tab)
    rows = json.loads(tab.run(CLAIMS))
    assert [row[1] for row in rows[:4]] == ["proved"] * 4 and all(row[2] == "yes" for row in rows)
    assert rows[1][0] == "privacy loss at most 1.0" and 0 <= float(rows[1][3]) < 1e-12
    assert "privacy loss at most 0.5" in edited(tab, '"epsilon": 1.0', '"epsilon": 0.5')
    assert json.loads(tab.run(CLAIMS))[1][1:3] == ["fails", "no"]
    assert "all 4 claims hold" in edited(tab, '"epsilon": 0.5', '"epsilon": 1.0')
    assert "mean loss at most 1.6" in edited(tab, '"value": 1.7', '"value": 1.6')
    assert "checksum does not match" in edited(tab, '"value": 1.6', '"value": 1.5', seal=False)
    assert tab.complaints() == []


def test_a_page_checks_composed_noise_and_says_where_a_budget_is_broken(tab: Browser, tmp_path: Path) -> None:
    noise = md.calibrate("laplace", privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0, dimension=4)
    noise.report(tmp_path / "t.html")
    tab.open(tmp_path / "t.html")
    assert "claims hold" in wait_for_verdict(tab)
    (row,) = (row for row in json.loads(tab.run(CLAIMS)) if row[0] == "delta at most 1e-06 at epsilon = 1.0")
    assert row[1:3] == ["proved", "yes"] and 0 < float(row[3]) < 1e-6
    assert "delta at most 1e-06 at epsilon = 0.9" in edited(tab, '"epsilon": 1.0', '"epsilon": 0.9')
    assert tab.complaints() == []


def test_a_page_of_a_kind_without_a_check_says_so(tab: Browser, tmp_path: Path) -> None:
    result = md.CorrelatedGaussian(np.tri(3), md.ApproximateDP(0.5, 1e-6)).solve()
    result.report(tmp_path / "t.html")
    tab.open(tmp_path / "t.html")
    said = wait_for_verdict(tab)
    assert said.startswith("Nothing was checked here") and "verify.pyz" in said
    assert not any("yes" in row for row in json.loads(tab.run(CLAIMS)))


def test_a_page_without_javascript_says_that_nothing_was_checked(
    tab: Browser, pages: dict[str, Path]
) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(pages["quantizer"])
        assert str(tab.run("document.querySelector('.verdict').textContent")).startswith(
            "Nothing was checked here"
        )
        assert {row[1] for row in json.loads(tab.run(CLAIMS))} == {"not checked"}
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
