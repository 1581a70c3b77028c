"""The studies' data: what is read where it is given, refused where it is damaged, and left out where it is absent."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from mechdesign_studies.learning.data import CIFAR, cifar
from mechdesign_studies.learning.layer_clipping import scales_of

import mechdesign as md
from mechdesign.shell.studykit import Report


def report(tmp_path: Path) -> Report:
    return Report("layer-clipping", "t", "", tmp_path, data_dir=tmp_path)


def given(tmp_path: Path, *contents: bytes) -> Report:
    for file, content in zip(CIFAR, contents, strict=True):
        (tmp_path / file).write_bytes(content)
    return report(tmp_path)


def test_cifar_is_read_where_it_is_given(tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (9, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(9)
    found = cifar(given(tmp_path, *(gzip.compress(records[at : at + 3].tobytes()) for at in (0, 3, 6))))
    assert found is not None
    for (x, y), at in zip(found, (slice(6), slice(6, 9)), strict=True):
        assert (
            np.array_equal(np.rint((x / 4 + 0.5) * 255), records[at, 1:]) and y.tolist() == list(range(9))[at]
        )


def test_cifar_is_left_out_where_it_is_absent(tmp_path: Path) -> None:
    made = report(tmp_path)
    assert cifar(made) is None and made._absent == list(CIFAR)


@pytest.mark.parametrize(
    "content",
    [
        *map(gzip.compress, (b"", bytes(3072), bytes(3074), b"\x0a" + bytes(3072), pickle.dumps([1] * 99))),
        bytes(3073),
    ],
    ids=["empty", "short", "long", "label 10", "pickle", "not gzipped"],  # a gzip file has the time in it
)
def test_damaged_cifar_is_refused(tmp_path: Path, content: bytes) -> None:
    """And no pickle is ever opened."""
    with pytest.raises(md.DesignError, match="binary version"):
        cifar(given(tmp_path, gzip.compress(bytes(3073)), content, gzip.compress(bytes(3073))))


@pytest.mark.parametrize("noise, order", [("gaussian", 2), ("laplace", 1)])
def test_every_allocation_has_the_same_budget_and_least_variance_the_least(noise: str, order: int) -> None:
    sizes = [432, 4608, 9216, 5120]
    clips = np.full(4, 4 ** (-1 / order))
    total = {}
    for kind in ("identical", "scale-perturb-rescale", "least variance"):
        scales = np.array(scales_of(kind, sizes, clips, 0.7, noise))
        assert ((clips / scales) ** order).sum() == pytest.approx(0.7**-order)
        total[kind] = (np.array(sizes) * scales**2).sum()
    assert total["least variance"] < 0.99 * min(total["identical"], total["scale-perturb-rescale"])
