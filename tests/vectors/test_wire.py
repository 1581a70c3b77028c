"""Messages, byte by byte: clients in JavaScript and C, written from docs/wire.md, send what Python sends."""

import ctypes
import json
import math
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence.exact import exp_lower
from mechdesign.vectors.coded import rounded_signs, shared_subsets, shared_words
from mechdesign.vectors.export import alias_columns, rounded_counts
from mechdesign.vectors.sampled import two_outputs

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
    body += ["static eight take(words *w) {eight e; if (w->left-- < 1) abort(); memcpy(e.bytes, w->next, 8);"]
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


@pytest.mark.slow
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


# -- The integer table: exact privacy, small bias, and C that draws as Python does, word for word ------------

MADE: dict[str, Any] = {
    "rqm": lambda: md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)),
    "optimum": lambda: (
        md.OptimalQuantizer(np.linspace(-3, 3, 13), md.PureDP(2.0), stats.uniform(-1, 2)).solve().mechanism
    ),
    "two": lambda: two_outputs(0.3),
    "far": lambda: md.Quantizer.rqm([997.3, 999.1, 1000.9, 1002.7], 0.22, (999, 1001)),
}
TABLES = {name: md.vectors.IntegerTable.of(made()) for name, made in MADE.items()}
REPORT = md.LocalWorkload(md.Workload.prefix_sums(5), md.PureDP(1.0)).solve().mechanism


@pytest.mark.parametrize("name", TABLES)
def test_the_budget_is_kept_in_integers(name: str) -> None:
    quantizer, table = MADE[name](), TABLES[name]
    exact = quantizer.certified().law.ratio()
    for column in table.counts.T.tolist():
        assert Fraction(max(column), min(column)) <= exact
    assert table.privacy_loss() <= quantizer.certified().privacy_loss()
    assert table.bias() <= 1e-8 * max(1.0, float(np.abs(table.bins).max()))
    assert np.abs(table.bins - quantizer.bins).max() <= 1e-6 * max(1.0, float(np.abs(table.bins).max()))


def test_a_smaller_budget_is_kept_or_refused() -> None:
    quantizer = MADE["rqm"]()
    loss = quantizer.certified().privacy_loss()
    near = md.vectors.IntegerTable.of(quantizer, epsilon=loss - 1e-7)
    ratios = [Fraction(max(c), min(c)) for c in near.counts.T.tolist()]
    assert max(ratios) <= exp_lower(loss - 1e-7)
    with pytest.raises(md.DesignError, match="epsilon"):
        md.vectors.IntegerTable.of(quantizer, epsilon=0.9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20).filter(any))
def test_alias_columns_have_the_counts(weights: list[int]) -> None:
    total = sum(weights)
    counts = rounded_counts([Fraction(w, total) for w in weights])
    assert sum(counts) == 1 << 32
    assert all(abs(n - Fraction(w << 32, total)) <= 1 for n, w in zip(counts, weights))
    columns = 1 << max((len(weights) - 1).bit_length(), 1)
    threshold, alias = alias_columns(counts, columns)
    found = [0] * columns
    for j in range(columns):
        found[j] += threshold[j]
        found[alias[j]] += (1 << 32) // columns - threshold[j]
    assert found == counts + [0] * (columns - len(counts))


@pytest.mark.parametrize("name", TABLES)
def test_draws_have_the_quantizers_law(name: str) -> None:
    quantizer, table = MADE[name](), TABLES[name]
    lower, upper = table.knots_range
    for place in (0.0, 0.37, 1.0):
        x = lower + place * (upper - lower)
        codes = table.codes(np.full(40_000, x)).ravel()
        wanted = quantizer.probabilities(x) * codes.size
        found = np.bincount(codes, minlength=len(wanted))
        assert stats.chisquare(found, wanted / wanted.sum() * found.sum()).pvalue > 1e-6


def test_reports_of_a_category() -> None:
    """Private in integers, drawn by a whole number's own row, decoded without bias by the rounded law; the header says what it takes."""
    table = md.vectors.IntegerTable.of_weights(REPORT.weights, epsilon=1.0)
    counts = table.counts[::2].tolist()
    assert table.categories == 5 and all(sum(row) == 2**32 for row in counts)
    assert max(Fraction(max(c), min(c)) for c in zip(*counts)) <= exp_lower(1.0) and table.privacy_loss() <= 1
    server = md.channels.LinearReport(REPORT.workload, counts)
    assert server.variance == pytest.approx(REPORT.variance, rel=1e-6)
    assert server.epsilon == table.privacy_loss()
    for x in (0, 4):
        found = np.bincount(table.codes(np.full(40_000, float(x))).ravel(), minlength=REPORT.outputs)
        assert stats.chisquare(found, np.array(counts[x]) / 2**32 * 40_000).pvalue > 1e-6
    text = md.vectors.c_header(table, name="hours")
    assert "x is a category, 0 to 4" in text and "Bias" not in text
    assert json.loads(md.vectors.flat_json(table))["knots"] == [0, 1, 2, 3, 4, 5]
    assert TABLES["rqm"].categories is None
    for bad, said in (
        ([[1, 2], [3]], "one length"),
        ([[0, 0], [1, 2]], "not all 0"),
        ([[0, 1], [1, 1]], "infinite"),
    ):
        with pytest.raises(md.DesignError, match=said):
            md.vectors.IntegerTable.of_weights(bad)
    with pytest.raises(md.DesignError, match="at least the law's own"):
        md.vectors.IntegerTable.of_weights(REPORT.weights, epsilon=0.9)


def test_scalars_as_messages() -> None:
    table = TABLES["optimum"]
    x = np.linspace(-1, 1, 5001)
    message = table.encode(x)
    assert len(message) < 5001 / 2 + 64
    assert np.abs((table.decode(message) - x).mean()) < 0.1
    total, count = table.aggregate([message, message])
    assert count == 10_002 and total[0] == pytest.approx(2 * table.decode(message).sum())
    assert table.release([[0.5, -0.5]]).shape == (1, 2)
    for bad in ([math.nan], [2.0], ["a"], None):
        with pytest.raises(md.DesignError):
            table.encode(bad)
    with pytest.raises(md.ResultFormatError):
        table.decode(message[:-3])
