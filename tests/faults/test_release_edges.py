"""What leaves the machine: refusals and warnings that no single record decides, pooled counts, words of the wrong width."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import mechdesign as md
from mechdesign.user_level import LinearQuery

LINE = md.MetricSpace.line([0.0, 1.0, 2.0])


@pytest.mark.parametrize("options", [{}, {"gaussian": True, "delta": 1e-6}])
def test_pooled_counts_need_equal_sizes(options: dict[str, Any]) -> None:
    """One person with 100,000 items and seven with 30 would move the pooled mean by nearly all of it."""
    release = md.LinearRelease(LinearQuery.histogram(LINE), alpha=1e9, users=8, **options)
    for counts in ([100_000, 110, 100], [10, 10, 4], [8, 0, 0]):
        with pytest.raises(md.DesignError, match="sizes"):
            release.release(counts)
    for sizes in ([100_000] + [30] * 7, [3] * 7, [2] * 8, 2, 0, 3.5, "3"):
        with pytest.raises(md.DesignError, match="sizes"):
            release.release([10, 10, 4], sizes=sizes)
    for sizes in (3, [3] * 8):
        assert release.release([10, 10, 4], sizes=sizes) == pytest.approx(
            [10 / 24, 10 / 24, 1 / 6], abs=100 * release.scale
        )


HEADER = md.vectors.c_header(
    md.vectors.IntegerTable.of(md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)))
)
WORDS = {
    "bytes": ("quantizer_word w = {{1, 2, 3, 4, 5, 6, 7, 8}};", "w", True),
    "32 bits": ("uint32_t w = 7;", "w", False),
    "64 bits": ("uint64_t w = 7;", "w", False),
    "what rand() gives": ("int w = 7;", "w", False),
    "made of a number": ("uint32_t w = 7;", "(quantizer_word){w}", False),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_word_of_the_wrong_type_does_not_compile(name: str, tmp_path: Path) -> None:
    """A number of 32 bits was widened without a word, and every output was then the same."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    made, given, compiles = WORDS[name]
    (tmp_path / "quantizer.h").write_text(HEADER)
    (tmp_path / "main.c").write_text(
        f'#include "quantizer.h"\nint main(void) {{ {made} '
        f"return quantizer_decode(quantizer_encode(0.5, {given})) > 9; }}\n"
    )
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.c", "-o", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == compiles, done.stderr
