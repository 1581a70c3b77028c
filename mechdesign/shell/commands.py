"""Commands that make results, from TOML files or options, and commands on result files."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mechdesign.errors import DesignError

__all__ = ["audit", "calibrate", "compare", "report", "solve", "verify"]

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


File = Annotated[Path, typer.Argument(help="Result file.")]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="A module of yours to import first: one that registers the laws and losses the file names.",
    ),
]


def _import(modules: list[str]) -> None:
    """Import what the user names, from the folder the command runs in too; never what a file names."""
    for name in modules:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
            raise DesignError.of("import", name, "must be the name of a module, as after Python's import")
        if (here := os.getcwd()) not in sys.path:
            sys.path.insert(0, here)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise DesignError.of(
                "import", name, f"could not be imported ({type(error).__name__}: {error})"
            ) from None


def _held(path: Path, modules: list[str] | None) -> tuple[Any, dict[str, Any]]:
    """What a file holds, and the results in it by name: one, "" , or those of a comparison or of a frontier."""
    from mechdesign.evidence.results import Result
    from mechdesign.files import load

    _import(modules or [])
    loaded = load(path)
    if isinstance(loaded, Result):
        return loaded, {"": loaded}
    kind = type(loaded).__name__
    if not hasattr(loaded, "agreements"):
        raise DesignError(f"{path}: holds a {kind}, not a result")
    if not loaded.members:
        raise DesignError(
            f"{path}: holds a {kind} without its results, as older versions wrote it: make it again and save it"
        )
    return loaded, loaded.members


def _of_table(loaded: Any) -> tuple[list[str], list[str]]:
    """What a comparison or a frontier says of its results that does not hold, and what nothing in it shows."""
    rows = loaded.agreements() if hasattr(loaded, "agreements") else []
    amiss = [f"does not hold: {claim}" for claim, _, _, holds in rows if not holds]
    return amiss, [f"claimed: {claim}" for claim, how, _, holds in rows if holds and how == "claimed"]


def _named(name: str) -> str:
    return f"{name}: " if name else ""


def audit(
    result: File,
    rows: Annotated[int, typer.Option(help="Rows of least slack to show.", min=0)] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write the whole audit table as CSV.")] = None,
    modules: Modules = None,
) -> None:
    """Check a stored result claim by claim, and its constraints from its mechanism; exit 1 if anything is amiss.

    Of a comparison or a frontier, every result in it.
    """
    import pandas as pd

    from mechdesign.evidence.proofs import audited, counted, tightest
    from mechdesign.shell.show import show

    if csv is not None:
        _beside(csv, result, "csv")
    loaded, members = _held(result, modules)
    (amiss, claimed), tables, counts = _of_table(loaded), [], []
    for name, member in members.items():
        claims, table, summary = audited(member, str(result))
        typer.echo(f"{_named(name)}{summary}")
        tables.append(table if member is loaded else table.assign(result=name))
        least = tightest(table, rows).itertuples(index=False)
        show(
            table.columns,
            least,
            f"{_named(name)}least slack of {len(table)} constraints, the tightest of each family first",
        )
        show(claims.columns, claims.itertuples(index=False), f"{_named(name)}claim by claim")
        amiss += [f"does not hold: {_named(name)}{claim}" for claim in claims["claim"][~claims["holds"]]]
        # Rows of the solver's model are evidence, not the definition: they carry its tolerance.
        definition = table[~table["family"].astype(str).str.startswith("model:")]
        over = definition[~(definition["slack"] >= -1e-9)]
        amiss += [
            f"violated: {_named(name)}{r.family} {r.index}, slack {r.slack:.3g}"
            for r in over.head(1).itertuples(index=False)
        ]
        counts.append(f"{_named(name)}every constraint of the definition holds; {counted(claims)}")
    if csv is not None:
        pd.concat(tables).to_csv(csv, index=False)
    if amiss:
        raise DesignError(f"{result}: {'; '.join(amiss)}")
    for line in [*claimed, *counts]:
        typer.echo(line)


def _beside(target: Path, result: Path, name: str) -> None:
    """Refuse a file that cannot be written, and the result itself."""
    from mechdesign.evidence.whole_files import check_writable

    if check_writable(target, name).exists() and result.exists() and target.samefile(result):
        raise DesignError.of(name, str(target), "is the result file itself: give another path")


def verify(result: File, modules: Modules = None) -> None:
    """Check a result file twice: by the stand-alone verifier, and by the package; exit 1 if a claim does not hold.

    The two were written apart from each other and share no code. The stand-alone one needs Python's
    standard library only (mechdesign/verifier); a kind of result that it does not cover is
    checked by the package alone, and the answer says so. Of a comparison or a frontier every result is checked, and that
    its table shows them.
    """
    from mechdesign.evidence.proofs import audited, counted
    from mechdesign.evidence.serialize import dumps
    from mechdesign.shell.show import show

    loaded, members = _held(result, modules)
    (failed, claimed), counts, by = _of_table(loaded), [], []
    for name, member in members.items():
        claims, _, _ = audited(member, str(result))
        text = result.read_text(encoding="utf-8") if member is loaded else dumps(member)
        rows, said = _alone(text)
        if member is loaded:
            if rows:
                show(("claim", "how", "holds"), rows, "by the stand-alone verifier")
            shown = claims[["claim", "how", "holds"]].itertuples(index=False)
            show(("claim", "how", "holds"), shown, "by the package")
        failed += [f"does not hold: {_named(name)}{claim}" for claim, _, holds in rows if not holds]
        failed += [f"does not hold: {_named(name)}{claim}" for claim in claims["claim"][~claims["holds"]]]
        counts += [
            f"{_named(name)}stand-alone verifier: {said}",
            f"{_named(name)}package: {counted(claims)}",
        ]
        by.append("two programs" if rows else "the package alone")
    if failed:
        raise DesignError(f"{result}: {'; '.join(dict.fromkeys(failed))}")
    for line in [*claimed, *counts]:
        typer.echo(line)
    if len(by) == 1:
        typer.echo(f"verified by {by[0]}: {result}")
        return
    both = by.count("two programs")
    typer.echo(
        f"verified, and as its table shows them: {len(by)} results of {result}, "
        f"{both} by two programs, {len(by) - both} by the package alone"
    )


def _alone(text: str) -> tuple[list[tuple[str, str, bool]], str]:
    """The claims that the stand-alone verifier checked, and its summary."""
    from mechdesign.verifier import verify as alone

    try:
        account = alone.verify(text)
    except alone.NotCovered as error:
        return [], f"not covered ({error})"
    except alone.Refused as error:
        return [("the file can be read", "proved", False)], f"refused ({error})"
    return account.rows, account.summary()


def report(
    result: File,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write; beside the file if not given.")
    ] = None,
    modules: Modules = None,
) -> None:
    """Write a result as one self-contained HTML page, to read, print and hand over; exit 1 if a claim does not hold."""
    from mechdesign.evidence.proofs import audited

    target = result.with_suffix(".html") if out is None and result.name else out or result
    _beside(target, result, "out")
    loaded, members = _held(result, modules)
    failed, _ = _of_table(loaded)
    for name, member in members.items():
        claims, _, _ = audited(member, str(result))  # refuses a file whose parts do not fit together
        failed += [f"does not hold: {_named(name)}{claim}" for claim in claims["claim"][~claims["holds"]]]
    loaded.report(target)
    typer.echo(f"written to {target}")
    if failed:
        raise DesignError(f"{result}: {'; '.join(failed)}")
