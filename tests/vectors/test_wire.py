"""Messages, byte by byte: clients in JavaScript and C, written from docs/wire.md, send what Python sends."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.vectors.coded import rounded_signs, shared_subsets, shared_words

from . import wire

CLIENT = Path(__file__).with_name("client.mjs")
NODE = shutil.which("node")
node = pytest.mark.skipif(NODE is None, reason="Node.js is absent: no JavaScript outside a browser")


def javascript(made: dict[str, Any], folder: Path) -> list[str]:
    (folder / "cases.json").write_text(json.dumps(made))
    return subprocess.run(
        [str(NODE), str(CLIENT), str(folder / "cases.json")], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def messages(made: dict[str, Any]) -> list[str | None]:
    return [case["message"] for case in made["cases"]]


def coarse(value: Any) -> Any:
    """Doubles to twelve digits: inputs, and what decodes, are made by sums whose order hangs on the processor."""
    if isinstance(value, dict):
        return {key: coarse(part) for key, part in value.items()}
    if isinstance(value, list):
        return [coarse(part) for part in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def test_the_vectors_that_are_kept_are_what_python_makes() -> None:
    """To the last bit on the processor that made them; elsewhere all but the last digits of inputs."""
    assert coarse(json.loads(wire.FILE.read_text())) == coarse(json.loads(wire.committed()))


@node
def test_javascript_makes_the_vectors_that_are_kept(tmp_path: Path) -> None:
    made = json.loads(wire.FILE.read_text())
    assert len(made["cases"]) >= 60
    found = [None if text.startswith("error: a") else text for text in javascript(made, tmp_path)]
    assert found == messages(made)


@node
def test_javascript_sends_what_python_sends(tmp_path: Path) -> None:
    made = wire.cases(list(wire.MECHANISMS), 10, start=100)
    assert javascript(made, tmp_path) == messages(made)


FLAGS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off"]
TABLE_IN_C = """
size_t run_ID(const double *x, int clip, const ID_seed *seed, int agreed, uint64_t number, words *w, unsigned char *out)
{
    uint32_t codes[SIZE]; int i, code;
    for (i = 0; i < SIZE; i++) {
        ID_word word; const double v = clip && x[i] > MOST ? MOST : clip && x[i] < LEAST ? LEAST : x[i];
        memcpy(word.bytes, take(w).bytes, 8); code = ID_encode(v, word);
        if (code < 0) return 0;
        codes[i] = (uint32_t)code;
    }
    return ID_message(codes, SIZE, agreed ? NULL : seed, number, out);
}
"""
VECTOR_IN_C = """
static ID_word take_ID(void *state) { ID_word word; memcpy(word.bytes, take(state).bytes, 8); return word; }
size_t run_ID(const double *x, int clip, const ID_seed *seed, int agreed, uint64_t number, words *w, unsigned char *out)
{
    ID_scratch *scratch = malloc(sizeof *scratch);
    const size_t size = ID_encode(x, clip, seed, agreed, number, take_ID, w, scratch, out);
    free(scratch);
    return size;
}
"""


def source(folder: Path, names: list[str]) -> str:
    """A file in C with a function run_m0, run_m1, … for each of these mechanisms."""
    lines = ["#include <stdlib.h>", "#include <string.h>"]
    body = ["typedef struct { const unsigned char *next; long left; } words;"]
    body += ["typedef struct { unsigned char bytes[8]; } eight;"]
    body += [
        "static eight take(words *w) { eight e; if (w->left-- < 1) abort(); memcpy(e.bytes, w->next, 8);"
    ]
    body += ["    w->next += 8; return e; }"]
    for i, name in enumerate(names):
        mechanism = wire.MECHANISMS[name]
        (folder / f"m{i}.h").write_text(md.vectors.c_header(mechanism, name=f"m{i}"))
        lines.append(f'#include "m{i}.h"')
        text = VECTOR_IN_C
        if isinstance(mechanism, md.vectors.IntegerTable):
            least, most = map(str, mechanism.knots_range)
            text = TABLE_IN_C.replace("LEAST", least).replace("MOST", most)
        body.append(text.replace("ID", f"m{i}").replace("SIZE", str(wire.dimension(mechanism))))
    return "\n".join([*lines, *body])


class Words(ctypes.Structure):
    _fields_ = (("next", ctypes.c_char_p), ("left", ctypes.c_long))


def for_c() -> dict[str, Any]:
    """The kept cases of one vector: what the functions in C encode."""
    made = json.loads(wire.FILE.read_text())
    made["cases"] = [
        c for c in made["cases"] if not isinstance(c["inputs"][0], list) or len(c["inputs"]) == 1
    ]
    return made


def in_c(library: Any, names: list[str], case: dict[str, Any]) -> str | None:
    x = np.ravel(case["inputs"]).astype(float)
    given = b"".join(int(word, 16).to_bytes(8, "little") for word in case["words"])
    if case["message"] is None:  # the loop over a table takes a word before it looks at the number
        given = bytes(8 * x.size)
    words, out = Words(given, len(given) // 8), ctypes.create_string_buffer(1000)
    run = getattr(library, f"run_m{names.index(case['mechanism'])}")
    run.restype = ctypes.c_size_t
    size = run(
        x.ctypes.data_as(ctypes.c_void_p),
        int(case["clip"]),
        bytes.fromhex(case["seed"]),
        int(case["first"] is not None),
        ctypes.c_uint64(int(case["first"] or 0)),
        ctypes.byref(words),
        out,
    )
    return None if size == 0 else out.raw[:size].hex() + ("" if words.left == 0 else " and words are left")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("c")
    (folder / "all.c").write_text(source(folder, list(wire.MECHANISMS)))
    command = [compiler, *FLAGS, "-shared", "-fPIC", "all.c", "-o", "all.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "all.so"))


def test_c_makes_the_vectors_that_are_kept(library: Any) -> None:
    made = for_c()
    assert [in_c(library, list(wire.MECHANISMS), case) for case in made["cases"]] == messages(made)


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_c_sends_what_python_sends(library: Any, count: int) -> None:
    names = list(wire.MECHANISMS)
    made = wire.cases(names, count, start=5000)
    assert [in_c(library, names, case) for case in made["cases"]] == messages(made)


def test_c_takes_knots_and_their_neighbours_as_python_does(library: Any) -> None:
    names, table = list(wire.MECHANISMS), wire.MECHANISMS["table"]
    inside = [np.nextafter(table.knots[1:], -np.inf), np.nextafter(table.knots[:-1], np.inf)]
    special, size = np.concatenate([table.knots, *inside]), wire.dimension(table)
    for first in range(0, len(special), size):
        x = np.resize(special[first:], size)
        case = wire.case_of("table", x, bytes(16), None, False, wire.words(table, first))
        assert in_c(library, names, case) == case["message"] is not None


def test_c_refuses_what_python_refuses(library: Any) -> None:
    names = list(wire.MECHANISMS)
    made = wire.cases(names, 20, start=700)
    refused = 0
    for case in made["cases"]:
        case["clip"] = False
        try:
            wire.MECHANISMS[case["mechanism"]].encode(case["inputs"])
            assert in_c(library, names, case) == case["message"]
        except md.DataError:
            refused += 1
            assert in_c(library, names, case) is None
        for bad in (np.nan, np.inf, -np.inf):
            spoilt = np.array(case["inputs"], dtype=float)
            spoilt.flat[-1] = bad
            assert in_c(library, names, {**case, "inputs": spoilt, "clip": False}) is None
    assert 50 < refused < 180


@pytest.mark.slow
def test_c_under_sanitizers(tmp_path: Path) -> None:
    """All kept cases: no undefined behaviour, nothing read or written outside."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    flags = [*FLAGS, "-fsanitize=undefined,address", "-fno-sanitize-recover=all"]
    (tmp_path / "none.c").write_text("int main(void) { return 0; }\n")
    if (
        compiler is None
        or subprocess.run([compiler, *flags, "none.c"], cwd=tmp_path, capture_output=True).returncode
    ):
        pytest.skip("no C compiler with sanitizers")
    names, made = list(wire.MECHANISMS), for_c()
    calls = []
    for case in made["cases"]:
        if case["message"] is None:
            continue
        i, numbers = names.index(case["mechanism"]), np.ravel(case["inputs"]).tolist()
        given = "".join(f"\\x{b:02x}" for w in case["words"] for b in int(w, 16).to_bytes(8, "little"))
        key = ", ".join(str(b) for b in bytes.fromhex(case["seed"]))
        calls.append(
            f"{{ const double x[] = {{{', '.join(v.hex() for v in numbers)}}}; const m{i}_seed s = {{{{{key}}}}};"
            f' words w = {{(const unsigned char *)"{given}", {len(case["words"])}}};'
            f" unsigned char *out = malloc(M{i}_BYTES({len(numbers) if case['mechanism'] in ('table', 'category') else 1}));"
            f" const size_t n = run_m{i}(x, {int(case['clip'])}, &s, {int(case['first'] is not None)}, UINT64_C({case['first'] or 0}), &w, out);"
            f" if (n != {len(case['message']) // 2} || w.left) return 1; free(out); }}"
        )
    text = "\n".join([source(tmp_path, names), "int main(void) {", *calls, "return 0; }"])
    (tmp_path / "all.c").write_text(text)
    subprocess.run([compiler, *flags, "all.c", "-o", "all", "-lm"], cwd=tmp_path, check=True)
    assert subprocess.run([str(tmp_path / "all")]).returncode == 0


def test_the_stream_as_the_page_says_it() -> None:
    words = [f"{word:016x}" for word in shared_words(1, 2, 2)]
    assert words == ["451d0dd40544b02e", "cfe1c8d758c1a838"]
    assert " and ".join(words) in wire.FILE.with_name("wire.md").read_text()


def test_all_subsets_are_equally_likely() -> None:
    chosen = shared_subsets(3, 0, 12_000, 6, 3)
    assert (chosen[:, 1:] > chosen[:, :-1]).all() and chosen.min() == 0 and chosen.max() == 5
    counts = np.bincount(chosen @ [36, 6, 1])
    assert (counts > 0).sum() == 20 and stats.chisquare(counts[counts > 0]).pvalue > 1e-4


def test_signs_are_rounded_with_exact_probabilities() -> None:
    y = np.array([-1.0, -0.75, -1e-300, 0.0, 2.0**-40, 0.3, 1.0])
    up = rounded_signs(np.tile(y, (60_000, 1))).mean(axis=0)
    assert np.abs(up - (1 + y) / 2).max() < 5 * 0.5 / 60_000**0.5 and up[0] == 0.0 and up[-1] == 1.0
