"""The studies' data: what is read where it is given, refused where it is damaged, and left out where it is absent."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from mechdesign_studies.learning.layer_clipping import CIFAR, RESNET20, cifar, resnet20

import mechdesign as md
from mechdesign.shell.studykit import Report


def report(tmp_path: Path) -> Report:
    return Report("layer-clipping", "t", "", tmp_path, data_dir=tmp_path)


def given(tmp_path: Path, content: bytes) -> Report:
    path = tmp_path / CIFAR
    path.parent.mkdir()
    path.write_bytes(content)
    return report(tmp_path)


def test_cifar_is_read_where_it_is_given(tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (7, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(7)
    found = cifar(given(tmp_path, records.tobytes()))
    assert found is not None
    assert np.array_equal(found[0] * 255, records[:, 1:]) and found[1].tolist() == list(range(7))


def test_cifar_is_left_out_where_it_is_absent(tmp_path: Path) -> None:
    made = report(tmp_path)
    assert cifar(made) is None and made._absent == [CIFAR]


@pytest.mark.parametrize(
    "content", [b"", bytes(3072), bytes(3074), b"\x0a" + bytes(3072), pickle.dumps({b"labels": [1] * 99})]
)
def test_damaged_cifar_is_refused(tmp_path: Path, content: bytes) -> None:
    """And no pickle is ever opened."""
    with pytest.raises(md.DesignError, match="binary version"):
        cifar(given(tmp_path, content))


def test_resnet20_has_the_parameters_that_are_counted() -> None:
    pytest.importorskip("torch", reason="PyTorch is absent: pip install 'mechdesign[torch]'")
    sizes = [p.numel() for p in resnet20().parameters()]
    assert sum(sizes) == sum(RESNET20) == 268_346 and len(sizes) == len(RESNET20) + 1
