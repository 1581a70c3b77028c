"""An entry of a ledger is one answer of the design's dimension, and it states whom it protects."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pytest

import mechdesign as md

BUDGET = md.ApproximateDP(100.0, 0.5)
OTHER = {"add-remove": "replace", "replace": "add-remove"}
TERM_BY_TERM = "joint-calibration"
COUNTED = [
    name
    for name, (made, _) in cheap.DESIGNS.items()
    if name != TERM_BY_TERM and (made().asks == "numbers" or made().central)
]
SEVERAL = [name for name in COUNTED if cheap.DESIGNS[name][0]().answer_size]


def protecting(neighbours: str) -> md.Result:
    bounds = md.Sensitivity(linf=1, neighbours=neighbours)
    return md.calibrate("gaussian", privacy=md.ZeroConcentratedDP(0.001), sensitivity=bounds)


class Fickle:
    """One answer when it is read first, and many when it is read again."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        self.read += 1
        return np.zeros(self.size if self.read == 1 else 1000 * self.size)


# -- one answer ------------------------------------------------------------------------------------------


def test_terms_of_a_joint_calibration_are_entered_all_at_once(tmp_path: Path) -> None:
    ledger = md.Ledger(tmp_path / "ledger.jsonl", BUDGET)
    with pytest.raises(md.DesignError, match="must be released term by term"):
        cheap.solved(TERM_BY_TERM).release([1], ledger=ledger)
    assert ledger.to_frame().empty


@pytest.mark.parametrize("name", SEVERAL)
def test_an_entry_is_one_answer_whatever_the_mechanism(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    result, path = cheap.solved(name), tmp_path / "ledger.jsonl"
    size, ledger = result.design.answer_size, md.Ledger(path, BUDGET)
    opened = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("os.urandom", lambda _: pytest.fail("drawn"))
        for x in (np.zeros((2, size)), [[3] * size] * 50, np.zeros(size + 1), []):
            with pytest.raises(
                md.DesignError, match="must be one answer of the design's dimension"
            ) as refused:
                result.release(x, ledger=ledger)
            assert "disjoint=True" in str(refused.value)
    assert path.read_bytes() == opened
    held = Fickle(size)
    found = result.release(held, ledger=ledger)
    assert held.read == 1 and np.size(found.answer) == size and found.entry == 1
    assert ledger.to_frame()[["answers", "disjoint"]].to_numpy().tolist() == [[1, False]]


def test_answers_about_disjoint_people_are_one_entry_that_says_how_many(tmp_path: Path) -> None:
    ledger = md.Ledger(tmp_path / "ledger.jsonl", md.PureDP(1.0))
    noise = md.calibrate("laplace", privacy=md.PureDP(0.5), sensitivity=1.0, dimension=2)
    found = noise.release(np.zeros((7, 2)), ledger=ledger, disjoint=True)
    assert found.answer.shape == (7, 2) and ledger.left().epsilon == pytest.approx(0.5)
    assert ledger.to_frame()[["answers", "disjoint"]].to_numpy().tolist() == [[7, True]]
    with pytest.raises(md.DesignError, match="must be one answer"):
        noise.release(np.zeros((0, 2)), ledger=ledger, disjoint=True)
    with pytest.raises(md.DesignError, match="disjoint = True: is said to a ledger"):
        noise.release(np.zeros((7, 2)), disjoint=True)
    assert noise.release(np.zeros((7, 2))).shape == (7, 2)  # nothing counts it


def test_who_is_replaced_may_be_in_two_groups(tmp_path: Path) -> None:
    with pytest.raises(md.DesignError, match='needs neighbours="add-remove"'):
        protecting("replace").release(
            [1, 2], ledger=md.Ledger(tmp_path / "ledger.jsonl", BUDGET), disjoint=True
        )


# -- whom it protects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COUNTED)
def test_a_ledger_holds_releases_for_neighbours_of_one_kind(name: str, tmp_path: Path) -> None:
    result = cheap.solved(name)
    own = result.design.consumption(result).neighbours
    other = protecting(OTHER[own])
    opened, begun = (md.Ledger(tmp_path / f"{k}.jsonl", BUDGET) for k in range(2))
    opened.charge(other)
    with pytest.raises(
        md.DesignError, match=f"protects neighbours by '{OTHER[own]}', and this result by '{own}'"
    ):
        opened.charge(result)
    begun.charge(result)
    with pytest.raises(md.DesignError, match=f"protects neighbours by '{own}'"):
        begun.charge(other)
    assert (len(opened.to_frame()), begun.to_frame()["neighbours"].tolist()) == (1, [own])
    assert f"{own} neighbours" in str(result) or own == "replace"


@pytest.mark.parametrize("name", [name for name in COUNTED if not name.startswith("user")])
def test_a_design_states_either_kind_of_neighbours(name: str) -> None:
    if name == "covariance-problem":  # its unknown does
        assert md.Covariance(np.eye(2), neighbours="replace").neighbours == "replace"
        return
    if name == "lattice-problem":
        p = md.LatticeNoise(1, 3, integer=True, tails=1.0, neighbours="replace")
        problem = md.Problem(md.Minimize(p.expected("squared")), [p.private(md.PureDP(1.0))])
        assert problem.neighbours == "replace"
        return
    if name == "scales-problem":
        s = md.Scales([1.0], neighbours="replace")
        problem = md.Problem(md.Minimize(s.expected()), [s.private(md.GaussianDP(1.0))])
        assert problem.neighbours == problem.protection().changes.neighbours == "replace"
        return
    design = cheap.DESIGNS[name][0]()
    if name.startswith("private-choice"):  # its votes do
        assert dataclasses.replace(design, neighbours="replaced vote").relation == "replace"
        return
    if any(field.name == "neighbours" for field in dataclasses.fields(design)):
        made = dataclasses.replace(design, neighbours="replace")
    else:
        bounds = md.Sensitivity(linf=1, neighbours="replace")
        made = dataclasses.replace(design, sensitivity=bounds)
    assert (design.neighbours, made.neighbours) == ("add-remove", "replace")


@pytest.mark.parametrize(
    "design",
    [
        lambda bounds: md.OptimalNoise(md.PureDP(1), bounds, dimension=2),
        lambda bounds: md.noise.KNorm(2, md.PureDP(1), bounds),
        lambda bounds: md.NoiseAllocation("laplace", bounds, md.PureDP(1)),
        lambda bounds: md.NoiseAllocation.of_sensitivity("laplace", bounds, 2, md.PureDP(1)),
        lambda bounds: md.CorrelatedGaussian(bounds, md.ZeroConcentratedDP(1)),
        lambda bounds: md.CorrelatedGaussian.of_sensitivity(bounds, 2, md.ZeroConcentratedDP(1)),
    ],
)
def test_bounds_hand_on_whom_they_are_for(design: Any) -> None:
    bounds = md.Sensitivity(each=[1.0, 1.0], neighbours="replace")
    assert design(bounds).neighbours == "replace"
    counts = md.Sensitivity(linf=1, neighbours="replace")
    assert md.CorrelatedGaussian.of_sensitivity(counts, 2, md.ZeroConcentratedDP(1)).neighbours == "replace"
    with pytest.raises(md.DesignError, match="neighbours = 'replace': must be those of the bounds"):
        md.OptimalNoise(md.PureDP(1), md.Sensitivity(linf=1), neighbours="replace")
