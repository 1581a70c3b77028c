"""The checker page: what it says of files and pages, here in Python, and in a real browser from the built documentation."""

import base64
import dataclasses
import functools
import gzip
import http.server
import importlib.util
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cheap
import pytest
from browser import CHROMIUM, Browser, browser
from scipy import stats

import mechdesign as md
from mechdesign.verifier.reading import NotCovered, Refused
from mechdesign.verifier.verify import verify

BUILT = os.environ.get("MECHDESIGN_DOCUMENTATION")
SOURCE = Path(__file__).parents[2] / "docs" / "_static" / "checker.py"


@pytest.fixture(scope="module")
def checker() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("checker", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["checker"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["checker"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file and a page of each of four kinds."""
    uniform, folder = stats.uniform(-1, 2), tmp_path_factory.mktemp("dropped")
    results = {
        "quantizer": md.OptimalQuantizer([-3, -0.5, 0.5, 3], md.PureDP(1.0), uniform).solve(),
        "noise": md.calibrate("laplace", privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0),
        "channel": md.MetricChannel(md.MetricSpace.grid(3, 3), alpha=0.7).solve(),
        "plan": md.Plan({"visits": md.Histogram(50), "spent": md.Sum(5.0)}, md.PureDP(1.0)).solve(),
    }
    for name, result in results.items():
        result.report(folder / f"{name}.html")
        result.save(folder / f"{name}.json")
    return {path.name: path for path in folder.iterdir()}


def test_honest_files_and_pages_hold(checker: ModuleType, files: dict[str, Path]) -> None:
    for name, path in files.items():
        said = checker.opened(name, path.read_bytes())
        assert "fails" not in said.replace('class=""', ""), (name, said[:800])
        text = path.with_suffix(".json").read_text()
        for claim, *_ in verify(text).rows:
            assert checker.html.escape(claim) in said, name
        assert ("The headline of the page is what its file says" in said) == name.endswith(".html")


@pytest.mark.parametrize("name", ["quantizer.json", "noise.json", "channel.json", "plan.json"])
def test_a_changed_digit_fails(checker: ModuleType, files: dict[str, Path], name: str) -> None:
    checker.opened(name, files[name].read_bytes())
    value = float(checker.number(0))
    assert "NO" not in checker.with_change(0, checker.number(0))
    assert "<td>NO</td>" in checker.with_change(0, repr(value * 0.99))
    assert "is no number" in checker.with_change(0, "1.5x")


@pytest.mark.parametrize("kind", sorted(cheap.documents()))
def test_a_claim_that_compares_two_numbers_has_its_margin(checker: ModuleType, kind: str) -> None:
    text = cheap.documents()[kind]
    try:
        account = verify(text)
    except (NotCovered, Refused):
        return  # nothing is claimed
    compares = re.compile(
        r"at most|costs? less|does better|^private|holds?$|sensitivity$|enough$|what is consumed|close as|sum to 1|shown is the (law's|channel)"
    )
    for claim, how, _ in account.rows:
        assert how == "claimed" or not compares.search(claim) or account.margins[claim] >= 0, claim
        assert (account.margins.get(claim) is None) == (account.margin(claim, "") == "yes or no")
    assert "<td></td>" not in checker.account(text)


@pytest.mark.parametrize("label", ["Error", "Lower bound", "Privacy", "Gap", "Status"])
def test_a_headline_that_differs_is_named(checker: ModuleType, files: dict[str, Path], label: str) -> None:
    page = files["quantizer.html"].read_text()
    shown = checker.Seen(page).facts[label]
    start = page.index("<dd", page.index(f"<dt>{label}</dt>"))
    end = page.index("</dd>", start)
    other = {
        "Privacy": "ε = 2",
        "Error": "1.5",
        "Lower bound": "1.800000",
        "Gap": "0.5%",
        "Status": "feasible",
    }[label]
    assert shown != other
    forged = f'{page[:start]}<dd class="value">{other}{page[end:]}'
    said = checker.opened("page.html", forged.encode())
    assert f"<li>{label}: the page shows" in said and other in said


def test_a_bound_that_is_not_near_is_no_headline(checker: ModuleType, tmp_path: Path) -> None:
    noise = md.OptimalNoise(md.PureDP(1.0)).solve()
    result = dataclasses.replace(noise, lower_bound=0.375 * noise.value)
    assert "gap 62.5%; the value is within 2.67 × the lower bound" in str(result)
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    facts = checker.Seen(page).facts
    assert facts["Lower bound"] == "not near" and "Gap" not in facts
    assert "the page shows" not in checker.opened("page.html", page.encode())
    for shown in (">0.3<", ">1.9<"):
        assert "<li>Lower bound: the page shows" in checker.opened(
            "page.html", page.replace(">not near<", shown).encode()
        )


def test_every_other_number_is_in_the_file_or_named(checker: ModuleType, files: dict[str, Path]) -> None:
    page = files["quantizer.html"].read_text()
    for old, new, number in (
        ("2.719 times", "2.119 times", "2.119"),
        ("privacy with ε = 1:", "privacy with ε = 3:", "3"),
    ):
        assert page.count(old) == 1
        said = checker.opened("x.html", page.replace(old, new).encode())
        assert f"<li>{number} in" in said
        assert f"<li>{number} in" not in checker.opened("x.html", page.encode())


def test_what_is_nothing_to_check_is_said_in_a_sentence(checker: ModuleType, files: dict[str, Path]) -> None:
    sound = files["quantizer.json"].read_bytes()
    cases = {
        b"\x89PNG\r\n\x1a\n": "is a picture",
        b"<!doctype html><html><body><p>1.7</p>": "carries no result file",
        b"0" * (64 * 2**20 + 1): "holds more than 64 MiB",
        gzip.compress(b"0" * (64 * 2**20 + 1)): "holds more than 64 MiB",
        sound.replace(b'"version": 2', b'"version": 3'): "not a mechdesign-result file of version 2",
        b"\xff\xfe\x00": "is no text",
        b"\x1f\x8b\x00": "is damaged",
        b"{": "no JSON",
        b"null": "an envelope with other parts",
    }
    for data, words in cases.items():
        said = checker.opened("<b>x</b>", data)
        assert words in said and "<b>" not in said and said.count("<p") == 1


# -- in the browser -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_words: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=BUILT)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with browser(tmp_path_factory.mktemp("profile")) as opened:
            opened.open(f"http://127.0.0.1:{server.server_port}/checker.html")
            wait(opened, "said", "Drop a result file")
            yield opened
        server.shutdown()


def wait(tab: Browser, place: str, words: str) -> str:
    """The text of an element, once it holds some words."""
    until = time.monotonic() + 90
    while words not in (said := tab.run(f"document.getElementById('{place}').textContent")):
        assert time.monotonic() < until, (said, tab.complaints())
        time.sleep(0.1)
    return said


def drop(tab: Browser, name: str, content: str) -> None:
    """Drop a file whose content is a JavaScript expression."""
    tab.run("document.getElementById('found').textContent = ''")
    tab.run(
        f"(() => {{ const d = new DataTransfer(); d.items.add(new File([{content}], {json.dumps(name)}));"
        "dispatchEvent(new DragEvent('drop', {dataTransfer: d, cancelable: true})); })()"
    )


def content(data: bytes) -> str:
    return f"Uint8Array.from(atob('{base64.b64encode(data).decode()}'), c => c.charCodeAt(0))"


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None or BUILT is None or not Path(BUILT, "pyodide").exists(),
    reason="NOT CHECKED: no Chromium here, no built documentation, or no Python for the browser in it",
)
def test_the_page_checks_what_is_dropped(tab: Browser, checker: ModuleType, files: dict[str, Path]) -> None:
    for name, path in files.items():
        drop(tab, name, content(path.read_bytes()))
        said = wait(tab, "found", "none fail of")
        for claim, *_ in verify(path.with_suffix(".json").read_text()).rows:
            assert " ".join(claim.split()) in " ".join(said.split())
    page = files["quantizer.html"].read_text().replace('<dd class="value">1.7005', '<dd class="value">1.6005')
    drop(tab, "forged.html", content(page.encode()))
    assert "Error: the page shows 1.6005" in wait(tab, "found", "none fail of")
    tab.run("document.getElementById('number').value = '1.6'; document.getElementById('again').click()")
    assert "NO" in wait(tab, "after", "fail of")
    drop(tab, "x.png", content(b"\x89PNG\r\n"))
    wait(tab, "found", "x.png is a picture")
    drop(tab, "big.json", "new Uint8Array(2e8)")
    wait(tab, "found", "200 MB: files of at most 64 MiB")
    home = tab.run("location.origin")
    assert all(url.startswith((home, "data:", "blob:")) for url in tab.requests())
    assert [c for c in tab.complaints() if "checker" in c or "pyodide" in c] == []  # the theme has its own


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None or BUILT is None, reason="NOT CHECKED: no Chromium, or no built documentation"
)
def test_without_python_the_page_says_where_the_verifier_is(tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.open(Path(str(BUILT), "checker.html"))  # from a file nothing can be loaded
        assert "verify.pyz" in wait(tab, "said", "could not be loaded")
