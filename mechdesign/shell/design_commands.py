"""Commands that make a result: from a TOML file, or straight from the options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mechdesign.errors import DesignError

__all__ = ["calibrate", "compare", "solve"]

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Result file to write (JSON).")]
Page = Annotated[Path | None, typer.Option("--report", "-r", help="Page to write (HTML).")]
Epsilon = Annotated[float | None, typer.Option(help="ε of (ε, δ)-differential privacy.")]
Delta = Annotated[float, typer.Option(help="δ; 0 is pure privacy.")]
Rho = Annotated[float | None, typer.Option(help="ρ of zero-concentrated privacy, instead of ε.")]
Each = Annotated[float | None, typer.Option("--sensitivity", "-s", help="The most any number changes.")]
Changed = Annotated[int | None, typer.Option(help="How many numbers change, at most.")]
L1 = Annotated[float | None, typer.Option("--l1", help="The most that the changes sum to.")]
L2 = Annotated[float | None, typer.Option("--l2", help="The largest Euclidean norm of the changes.")]
Size = Annotated[int, typer.Option("--dimension", "-k", help="How many numbers the query returns.")]
Loss = Annotated[str, typer.Option(help='What is minimised: "squared" or "absolute".')]
Rounds = Annotated[int, typer.Option(help="How often the query is answered.")]
Limit = Annotated[float | None, typer.Option("--time-limit", help="Seconds for each search.")]
Rate = Annotated[float, typer.Option(help="Share of the records that a round samples (Poisson).")]


def _check_outputs(spec: Path | None = None, /, **targets: Path | None) -> None:
    """Refuse paths that nothing can be written to, or that are another file's: before the work, not after."""
    from mechdesign.evidence.whole_files import check_writable

    seen: dict[Path, str] = {} if spec is None else {Path(os.path.realpath(spec)): "the TOML file"}
    for name, target in targets.items():
        if target is not None:
            found = check_writable(target, name)
            if seen.setdefault(found, name) != name and (found.is_file() or not found.exists()):
                raise DesignError.of(name, str(target), f"is the path of {seen[found]} too: give another")


def _handed(result: Any, out: Path | None, page: Path | None) -> None:
    typer.echo(str(result))
    for target, write in ((out, result.save), (page, result.report)):
        if target is not None:
            write(target)
            typer.echo(f"written to {target}")


def solve(
    spec: Annotated[Path, typer.Argument(help="TOML file that describes a design.")],
    out: Out = None,
    report: Page = None,
) -> None:
    """Solve the design described in a TOML file."""
    from mechdesign.shell.spec_file import design_from_toml, located

    _check_outputs(spec, out=out, report=report)
    design, options = design_from_toml(spec)
    with located(spec):
        result = design.solve(**options)
    _handed(result, out, report)


def privacy_of(epsilon: float | None, delta: float, rho: float | None) -> Any:
    """The requirement that the options state."""
    from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP

    if epsilon is not None and rho is None:
        return ApproximateDP(epsilon, delta) if delta else PureDP(epsilon)
    if rho is None or epsilon is not None:
        raise DesignError("privacy: give --epsilon (with --delta), or --rho")
    if delta:
        raise DesignError("delta: goes with --epsilon, not with --rho")
    return ZeroConcentratedDP(rho)


def _only(option: str, words: str, others: dict[str, Any]) -> None:
    """Refuse options that say nothing beside another."""
    for name, value in others.items():
        if value is not None:
            raise DesignError.of(name, value, f"contradicts {option}, which asks for {words}: leave one out")


def sensitivity_of(each: float | None, changed: int | None, l1: float | None, l2: float | None) -> Any:
    """The sensitivity that the options state: one number, or several bounds together."""
    from mechdesign.problem.sensitivity import Sensitivity

    if changed is None and l1 is None and l2 is None:
        if each is None:
            raise DesignError(
                "sensitivity: give --sensitivity, --l1 or --l2 (and --changed, if fewer numbers change)"
            )
        return each
    return Sensitivity(linf=each, l1=l1, l2=l2, changed=changed)


def calibrate(
    noise: Annotated[
        str, typer.Argument(help="gaussian, laplace, staircase, discrete_laplace, flipped_huber, …")
    ],
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    sensitivity: Each = None,
    changed: Changed = None,
    l1: L1 = None,
    l2: L2 = None,
    dimension: Size = 1,
    loss: Loss = "squared",
    rounds: Rounds = 1,
    sampling_rate: Rate = 1.0,
    time_limit: Limit = None,
    out: Out = None,
    report: Page = None,
) -> None:
    """Find the least noise of one family that meets a privacy requirement."""
    from mechdesign.noise.calibration.design import Calibration

    _check_outputs(out=out, report=report)
    design = Calibration(
        noise,
        privacy_of(epsilon, delta, rho),
        sensitivity_of(sensitivity, changed, l1, l2),
        dimension,
        loss,
        rounds=rounds,
        sampling_rate=sampling_rate,
    )
    _handed(design.solve(time_limit=time_limit), out, report)


def compare(
    spec: Annotated[
        Path | None,
        typer.Argument(
            help='TOML file with a question ("NumericQuery", …), instead of the options; for metric spaces.'
        ),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    sensitivity: Each = None,
    changed: Changed = None,
    l1: L1 = None,
    l2: L2 = None,
    dimension: Size = 1,
    rounds: Rounds = 1,
    sampling_rate: Rate = 1.0,
    whole: Annotated[bool, typer.Option("--whole", help="The numbers are whole (counts).")] = False,
    bits: Annotated[
        int | None, typer.Option(help="Bits of a report of one person's number: a local report.")
    ] = None,
    input_range: Annotated[tuple[float, float] | None, typer.Option(help="Where that number lies.")] = None,
    loss: Annotated[str | None, typer.Option(help='What is ranked by: "squared" or "absolute".')] = None,
    mechanism: Annotated[list[str] | None, typer.Option("--mechanism", "-m", help="Try these alone.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Mechanisms tried at a time.", min=1)] = 1,
    time_limit: Limit = None,
    total_time_limit: Annotated[
        float | None, typer.Option(help="Seconds for all mechanisms together.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV.")] = None,
    out: Out = None,
    report: Page = None,
) -> None:
    """Try every mechanism that answers a question, certified, and rank them by their error."""
    from mechdesign import choose
    from mechdesign.shell.show import show

    _check_outputs(spec, csv=csv, out=out, report=report)
    if spec is not None:
        from mechdesign.shell.spec_file import question_from_toml

        stated = {
            "epsilon": epsilon,
            "rho": rho,
            "sensitivity": sensitivity,
            "changed": changed,
            "l1": l1,
            "l2": l2,
        }
        _only(
            "the file",
            "its own question",
            {**stated, "bits": bits, "input-range": input_range, "loss": loss},
        )

        question, asked = question_from_toml(spec)
    else:
        ranked = {} if loss is None else {"loss": loss}
        asked = {"privacy": privacy_of(epsilon, delta, rho)}
        if bits is not None:
            _only(
                "bits",
                "a local report",
                {
                    "sensitivity": sensitivity, "changed": changed, "l1": l1, "l2": l2, "whole": whole or None,
                    "dimension": None if dimension == 1 else dimension, "rounds": None if rounds == 1 else rounds,
                    "sampling-rate": None if sampling_rate == 1 else sampling_rate,
                },
            )  # fmt: skip
            question = choose.LocalReport(bits, input_range, **ranked)
        else:
            _only(
                "sensitivity", "noise on numbers computed from everybody's data", {"input-range": input_range}
            )
            several = sensitivity_of(sensitivity, changed, l1, l2)
            question = choose.NumericQuery(
                dimension, several, rounds=rounds, sampling_rate=sampling_rate, whole=whole, **ranked
            )
    asked |= {"time_limit": time_limit, "total_time_limit": total_time_limit}
    found = choose.compare(question, mechanisms=mechanism or None, jobs=jobs, **asked)
    frame = found.to_frame()
    frame["privacy"] = frame["privacy"].str.rpartition(": ")[2]
    columns = [
        "mechanism",
        "error",
        "ratio",
        "standard deviation",
        "mean absolute error",
        "95% half-width",
        "privacy",
    ]
    show(columns, frame[columns].itertuples(index=False), f"{found.question}; {found.privacy}")
    typer.echo(f"ratio: to {found.reference}")
    for name, reason in found.refused.items():
        typer.echo(f"not {name}: {reason}")
    for target, write in ((csv, found.to_csv), (out, found.save), (report, found.report)):
        if target is not None:
            write(target)
            typer.echo(f"written to {target}")
