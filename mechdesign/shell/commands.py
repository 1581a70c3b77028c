"""Commands that make results from TOML files or options, and commands on result files."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mechdesign.errors import DataError, DesignError, MechdesignError, MissingExtra, ResultFormatError, refuse

if TYPE_CHECKING:
    import pandas as pd

    from mechdesign.evidence.page import Exportable
    from mechdesign.evidence.results import Result
    from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
    from mechdesign.problem.sensitivity import Sensitivity

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Result file to write (JSON).")]
Page = Annotated[Path | None, typer.Option("--report", "-r", help="Page to write (HTML).")]
Epsilon = Annotated[float | None, typer.Option(help="ε of (ε, δ)-differential privacy.")]
Delta = Annotated[float, typer.Option(help="δ; 0 is pure privacy.")]
Rho = Annotated[float | None, typer.Option(help="ρ of zero-concentrated privacy, instead of ε.")]
Each = Annotated[
    float | None,
    typer.Option(
        "--sensitivity", "-s", help="The most any number changes when one person is added or removed."
    ),
]
Changed = Annotated[int | None, typer.Option(help="How many numbers change, at most.")]
L1 = Annotated[float | None, typer.Option("--l1", help="The most that the changes sum to.")]
L2 = Annotated[float | None, typer.Option("--l2", help="The largest Euclidean norm of the changes.")]
Size = Annotated[int, typer.Option("--dimension", "-k", help="How many numbers the query returns.")]
Loss = Annotated[str, typer.Option(help='What is minimised: "squared" or "absolute".')]
Rounds = Annotated[int, typer.Option(help="How often the query is answered.")]
Said = Annotated[str | None, typer.Option(help="Shown on the page, as given.")]
Limit = Annotated[float | None, typer.Option("--time-limit", help="Seconds for each search.")]
Rate = Annotated[float, typer.Option(help="Share of the records that a round samples (Poisson).")]


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "Examples:\n\n" + "\n\n".join(f"  mechdesign {line}" for line in lines)


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    epilog=examples(
        "calibrate gaussian --epsilon 1 --delta 1e-6 --sensitivity 1 --report report.html",
        "solve design.toml -o result.json",
        "verify result.json",
    ),
)


def _check_outputs(*read: Path | None, **targets: Path | None) -> None:
    """Refuse paths that cannot be written, or that another file has, before the work starts; `read` are the files that the command reads."""
    from mechdesign.evidence.files import check_writable

    seen = {Path(os.path.realpath(path)): "the file that is read" for path in read if path is not None}
    for name, target in targets.items():
        if target is not None:
            found = check_writable(target, name, ledger=name == "ledger")
            if seen.setdefault(found, name) != name and (found.is_file() or not found.exists()):
                raise DesignError.of(name, str(target), f"is the path of {seen[found]} too: give another")


def _written(result: Exportable, csv: Path | None, out: Path | None, page: Path | None) -> None:
    for target, write in ((csv, result.to_csv), (out, result.save), (page, result.report)):
        if target is not None:
            write(target)
            typer.echo(f"written to {target}")


@app.command(epilog=examples("solve design.toml -o result.json", "solve design.toml --report report.html"))
def solve(
    spec: Annotated[Path, typer.Argument(help="TOML file that describes a design.")],
    out: Out = None,
    report: Page = None,
) -> None:
    """Solve the design described in a TOML file."""
    _solve(spec, None, out, report)


def _solve(
    spec: Path, only: str | None, out: Path | None, report: Path | None, **others: Path | None
) -> Result:
    from mechdesign.shell.spec_file import design_from_toml, located

    _check_outputs(spec, out=out, report=report, **others)
    design, options = design_from_toml(spec, only)
    with located(spec):
        result = design.solve(**options)
    typer.echo(str(result))
    _written(result, None, out, report)
    return result


def privacy_of(
    epsilon: float | None, delta: float, rho: float | None
) -> PureDP | ApproximateDP | ZeroConcentratedDP:
    """Return the requirement that the options state."""
    from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP

    if epsilon is not None and rho is None:
        return ApproximateDP(epsilon, delta) if delta else PureDP(epsilon)
    if rho is None or epsilon is not None:
        raise DesignError("privacy: give --epsilon (with --delta), or --rho")
    DesignError.when(delta, "delta: goes with --epsilon, not with --rho")
    return ZeroConcentratedDP(rho)


def _only(option: str, words: str, **others: object) -> None:
    """Refuse options that contradict a given one."""
    for name, value in others.items():
        allowed = f"contradicts {option}, which asks for {words}: leave one out"
        refuse(value is not None, name.replace("_", "-"), value, allowed)


def sensitivity_of(
    sensitivity: float | None, l0: int | None, l1: float | None, l2: float | None
) -> float | Sensitivity:
    """Return the sensitivity that the options state: one number, or several bounds together."""
    from mechdesign.problem.sensitivity import Sensitivity

    if l0 is None and l1 is None and l2 is None:
        if sensitivity is None:
            allowed = "sensitivity: give --sensitivity, --l1 or --l2 (and --l0, if fewer numbers change)"
            raise DesignError(allowed)
        return sensitivity
    return Sensitivity(linf=sensitivity, l1=l1, l2=l2, l0=l0)


@app.command(
    epilog=examples(
        "calibrate laplace --epsilon 1 --sensitivity 1",
        "calibrate gaussian --epsilon 1 --delta 1e-6 -s 1 --l0 3 -k 20 --report report.html",
        "calibrate gaussian --epsilon 4 --delta 1e-5 --l2 1 --rounds 1000 --sampling-rate 0.01",
    )
)
def calibrate(
    noise: Annotated[
        str, typer.Argument(help="gaussian, laplace, staircase, discrete_laplace, flipped_huber, …")
    ],
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    sensitivity: Each = None,
    l0: Changed = None,
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
    from mechdesign.noise.calibration import Calibration

    _check_outputs(out=out, report=report)
    design = Calibration(
        noise,
        privacy_of(epsilon, delta, rho),
        sensitivity_of(sensitivity, l0, l1, l2),
        dimension,
        loss,
        rounds=rounds,
        sampling_rate=sampling_rate,
    )
    result = design.solve(time_limit=time_limit)
    typer.echo(str(result))
    _written(result, None, out, report)


Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="A module of yours to import first: one that registers laws, losses or mechanisms.",
    ),
]


def _import(modules: list[str]) -> None:
    """Import modules that the user names, also from the current folder; modules that a file names are never imported."""
    for name in modules:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
            raise DesignError.of("import", name, "must be the name of a module, as after Python's import")
        if (here := os.getcwd()) not in sys.path:
            sys.path.insert(0, here)
        try:
            importlib.import_module(name)
        except Exception as error:
            allowed = f"could not be imported ({type(error).__name__}: {error})"
            raise DesignError.of("import", name, allowed) from None


@app.command(
    epilog=examples(
        "compare --epsilon 1 --delta 1e-6 -s 1 --l0 3 -k 20 --integer --report report.html",
        "compare --bits 2 --epsilon 2 --input-range -1 1",
        "compare question.toml",
    )
)
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
    l0: Changed = None,
    l1: L1 = None,
    l2: L2 = None,
    dimension: Size = 1,
    rounds: Rounds = 1,
    sampling_rate: Rate = 1.0,
    integer: Annotated[bool, typer.Option("--integer", help="The numbers are whole (counts).")] = False,
    bits: Annotated[
        int | None, typer.Option(help="Bits of a report of one person's number: a local report.")
    ] = None,
    input_range: Annotated[tuple[float, float] | None, typer.Option(help="Where that number lies.")] = None,
    loss: Annotated[str | None, typer.Option(help='What is ranked by: "squared" or "absolute".')] = None,
    mechanism: Annotated[list[str] | None, typer.Option("--mechanism", "-m", help="Try these alone.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Mechanisms tried at a time.", min=1)] = 1,
    time_limit: Limit = None,
    total_time_limit: Annotated[float, typer.Option(help="Seconds for all mechanisms together.")] = 600.0,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV.")] = None,
    out: Out = None,
    report: Page = None,
    modules: Modules = None,
) -> None:
    """Try every mechanism that answers a question, certified, and rank them by their error."""
    from mechdesign import choose

    _import(modules or [])
    _check_outputs(spec, csv=csv, out=out, report=report)
    stated: dict[str, Any] = {"sensitivity": sensitivity, "l0": l0, "l1": l1, "l2": l2}
    if spec is not None:
        from mechdesign.shell.spec_file import question_from_toml

        own = {"epsilon": epsilon, "rho": rho, "bits": bits, "input_range": input_range, "loss": loss}
        _only("the file", "its own question", **stated, **own)
        question, asked = question_from_toml(spec)
    else:
        ranked: dict[str, Any] = {} if loss is None else {"loss": loss}
        asked = {"privacy": privacy_of(epsilon, delta, rho)}
        counts: dict[str, Any] = {"dimension": dimension, "rounds": rounds, "sampling_rate": sampling_rate}
        if bits is not None:
            ranked |= {} if input_range is None else {"input_range": input_range}
            changed_ones = {name: value for name, value in counts.items() if value != 1}
            _only("bits", "a local report", **stated, integer=integer or None, **changed_ones)
            question = choose.LocalReport(bits, **ranked)
        else:
            words = "noise on numbers computed from everybody's data"
            _only("sensitivity", words, input_range=input_range)
            question = choose.NumericQuery(
                sensitivity=sensitivity_of(**stated), integer=integer, **counts, **ranked
            )
    asked |= {"time_limit": time_limit, "total_time_limit": total_time_limit}
    found = choose.compare(question, mechanisms=mechanism or None, jobs=jobs, **asked)
    typer.echo(str(found))
    _written(found, csv, out, report)


File = Annotated[Path, typer.Argument(help="Result file.")]


@dataclass(frozen=True)
class _Checked:
    """One result of a file, alone or among several, with its checks.

    ``title`` precedes each line about it: its name and a colon, or "" for a result alone.
    """

    title: str
    result: Result
    claims: pd.DataFrame
    constraints: pd.DataFrame
    summary: str


def _checked(
    path: Path, modules: list[str] | None
) -> tuple[Result | Exportable, list[_Checked], list[str], list[str]]:
    """Load a file and check each result in it; return all, with the claims that fail and those that are only stated."""
    from mechdesign.evidence.proofs import fitting
    from mechdesign.evidence.results import Result
    from mechdesign.evidence.serialize import load

    _import(modules or [])
    loaded, rows = load(path), []
    if isinstance(loaded, Result):
        members = {"": loaded}
    elif hasattr(loaded, "agreements") and loaded.members:
        members, rows = {f"{name}: ": member for name, member in loaded.members.items()}, loaded.agreements()
    else:
        raise DesignError(
            f"{path}: holds a {type(loaded).__name__}, not a result, nor a comparison or frontier with its results: make it again and save it"
        )
    try:
        with fitting():  # refuse parts of the right kind whose sizes or values do not fit together
            found = [_Checked(t, one, one.checks(), one.audit(), str(one)) for t, one in members.items()]
    except MissingExtra:
        raise
    except MechdesignError as error:
        reason = " ".join(f"{error!s:.200}".split())
        raise ResultFormatError(f"{path}: its parts do not fit together ({reason})") from None
    failed = [f"does not hold: {row.claim}" for row in rows if not row.holds]
    for one in found:
        failed += [
            f"does not hold: {one.title}{claim}" for claim in one.claims["claim"][~one.claims["holds"]]
        ]
    return (
        loaded,
        found,
        failed,
        [f"claimed: {row.claim}" for row in rows if row.holds and row.how == "claimed"],
    )


@app.command(epilog=examples("report result.json", "report result.json -o report.html"))
def report(
    result: File,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write; next to the file if not given.")
    ] = None,
    dataset: Said = None,
    author: Said = None,
    purpose: Said = None,
    date: Said = None,
    modules: Modules = None,
) -> None:
    """Write a result as one self-contained HTML page, to read, print and hand over; exit 1 if a claim does not hold."""
    target = result.with_suffix(".html") if out is None and result.name else out or result
    _check_outputs(result, out=target)
    loaded, _, failed, _ = _checked(result, modules)  # refuses a file whose parts do not fit together
    loaded.report(target, dataset=dataset, author=author, purpose=purpose, date=date)
    typer.echo(f"written to {target}")
    DesignError.when(failed, f"{result}: {'; '.join(failed)}")


@app.command(epilog=examples("verify result.json"))
def verify(
    result: File,
    modules: Modules = None,
    seconds: Annotated[
        float, typer.Option(help="Work allowed to the stand-alone verifier, beside a second a megabyte.")
    ] = 5.0,
) -> None:
    """Check a result file twice: by the stand-alone verifier, and by the package; exit 1 if a claim does not hold.

    The two were written separately and share the reading of files alone. The stand-alone one needs Python's
    standard library only (mechdesign/verifier); a kind of result that it does not cover is
    checked by the package alone, and the output says so. In a comparison or a frontier every result is checked, and
    whether the table shows them.
    """
    from mechdesign.evidence.digits import show
    from mechdesign.evidence.files import read_text
    from mechdesign.evidence.proofs import counted
    from mechdesign.evidence.results import margin_of
    from mechdesign.evidence.serialize import dumps

    refuse(not seconds >= 0, "seconds", seconds, "must be 0 or more")
    loaded, found, failed, claimed = _checked(result, modules)
    counts, by = [], []
    for one in found:
        alone = one.result is loaded
        rows, said = _stand_alone(read_text(result) if alone else dumps(one.result), seconds)
        if alone:
            if rows:
                show(("claim", "how", "margin", "holds"), rows, "by the stand-alone verifier")
            shown = ((c.claim, c.how, margin_of(c), c.holds) for c in one.claims.itertuples())
            show(("claim", "how", "margin", "holds"), shown, "by the package")
        failed += [f"does not hold: {one.title}{claim}" for claim, *_, holds in rows if not holds]
        counts += [f"{one.title}stand-alone verifier: {said}", f"{one.title}package: {counted(one.claims)}"]
        by.append("two programs" if rows else "the package alone")
    if not alone:
        rows, said = _stand_alone(read_text(result), seconds * len(by))
        failed += [f"does not hold: {claim}" for claim, *_, holds in rows if not holds]
        counts.append(f"the whole: stand-alone verifier: {said}")
    DesignError.when(failed, f"{result}: {'; '.join(dict.fromkeys(failed))}")
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


def _stand_alone(text: str, seconds: float) -> tuple[list[tuple[str, str, str, bool]], str]:
    """Return the claims that the stand-alone verifier checked, and its summary."""
    from mechdesign.verifier.reading import NotCovered, Refused
    from mechdesign.verifier.verify import verify as stand_alone

    try:
        account = stand_alone(text, seconds)
    except NotCovered as error:
        return [], error.said
    except Refused as error:
        return [("the file can be read", "proved", "yes or no", False)], f"refused ({error})"
    rows = [(claim, how, account.margin(claim, how), holds) for claim, how, holds in account.rows]
    return rows, account.summary()


@app.command(epilog=examples("certificate channel.json --vipr bound.vipr"))
def certificate(
    result: File,
    vipr: Annotated[Path, typer.Option("--vipr", help="File to write, in the format VIPR 1.0.")],
    modules: Modules = None,
) -> None:
    """Write a result's lower bound for third-party checkers, as a linear program in rationals with its multipliers.

    viprchk and the formally verified cake_vipr read it. Exit 2 if the bound rests on no finite linear program (closed
    forms, bounds within one family, a continuum of multipliers), and 1 if its proof does not hold.
    """
    from mechdesign.evidence.results import Result
    from mechdesign.evidence.serialize import load
    from mechdesign.evidence.vipr import NoProgramError

    _check_outputs(result, vipr=vipr)
    _import(modules or [])
    loaded = load(result)
    try:
        if not isinstance(loaded, Result):
            raise NoProgramError(f"holds a {type(loaded).__name__}, not one result with a lower bound")
        loaded.to_vipr(vipr)
    except NoProgramError as error:
        typer.echo(f"error: {result}: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"written to {vipr}: {loaded.lower_bound!r} is a lower bound of {loaded.mechanism_class}")


@app.command(epilog=examples("audit result.json --rows 5 --csv audit.csv", "audit table.csv --epsilon 1"))
def audit(
    result: Annotated[Path, typer.Argument(help="Result file, or a table of probabilities (CSV).")],
    rows: Annotated[
        int, typer.Option(help="Rows of least slack to show, of a result one of each family at least.", min=0)
    ] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write the whole audit table as CSV.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε that the table claims.")] = None,
    delta: Annotated[float, typer.Option(help="δ that the table claims.")] = 0.0,
    loss: Annotated[
        str, typer.Option(help='What an error of the table costs: "squared" or "absolute".')
    ] = "squared",
    skip: Annotated[
        int, typer.Option(help="Lines of the table before the one that holds the outputs.", min=0)
    ] = 0,
    percent: Annotated[bool, typer.Option("--percent", help="The table is in percent.")] = False,
    index: Annotated[
        str | None, typer.Option(help="Heading of the table's column of inputs, if not the first.")
    ] = None,
    rounding: Annotated[
        float | None, typer.Option(help="Half a unit of the last digit printed, if not that of the table.")
    ] = None,
    modules: Modules = None,
) -> None:
    """Check a stored result claim by claim, and its constraints from its mechanism; exit 1 if anything is amiss.

    In a comparison or a frontier every result is checked. A table of somebody else's probabilities is compared with the ε that it claims and
    with the optimum: its first line holds the outputs, every other line an input and its probabilities.
    """
    import pandas as pd

    from mechdesign.evidence.digits import show
    from mechdesign.evidence.proofs import counted, tightest

    _check_outputs(result, csv=csv)
    if result.suffix.lower() == ".csv":
        from mechdesign.quantizers.printed_table import audit_table

        DesignError.when(epsilon is None, "privacy: give the table's --epsilon (with --delta)")
        asked: Any = privacy_of(epsilon, delta, None)
        found = audit_table(
            result, privacy=asked, loss=loss, skip=skip, percent=percent, index=index, rounding=rounding
        )
        _show_table(result, found, rows, csv)
        return
    if any(given is not None for given in (epsilon, index, rounding)) or delta or skip or percent:
        raise DesignError(
            "epsilon, delta, skip, percent, index, rounding: go with a table (CSV); a result file states its own privacy"
        )
    _, parts, amiss, claimed = _checked(result, modules)
    tables, counts = [], []
    for one in parts:
        table, claims = one.constraints, one.claims
        typer.echo(f"{one.title}{one.summary}")
        tables.append(table.assign(result=one.title.removesuffix(": ")) if one.title else table)
        heading = f"{one.title}least slack of {len(table)} constraints, the tightest of each family first"
        show(table.columns, tightest(table, rows).itertuples(index=False), heading)
        show(claims.columns, claims.itertuples(index=False), f"{one.title}claim by claim")
        # Rows of the solver's model are evidence, not the definition: they hold to its tolerance only.
        definition = table[~table["family"].astype(str).str.startswith("model:")]
        over = definition[~(definition["slack"] >= -1e-9)].head(1).itertuples(index=False)
        amiss += [f"violated: {one.title}{r.family} {r.index}, slack {r.slack:.3g}" for r in over]
        held = "every constraint of the definition holds" if len(definition) else "no constraint is listed"
        counts.append(f"{one.title}{held}; {counted(claims)}")
    if csv is not None:
        pd.concat(tables).to_csv(csv, index=False)
    DesignError.when(amiss, f"{result}: {'; '.join(amiss)}")
    for line in [*claimed, *counts]:
        typer.echo(line)


def _show_table(table: Path, found: Any, rows: int, csv: Path | None) -> None:
    from mechdesign.evidence.digits import show

    typer.echo(str(found))
    least = found.constraints.head(rows)
    show(least.columns, least.itertuples(index=False), f"least slack of {len(found.constraints)} constraints")
    if csv is not None:
        found.to_csv(csv)
    DesignError.when(not found.holds, f"{table}: does not keep the privacy that it claims")


@app.command(epilog=examples("plan release.toml -o plan.json --engines scales.json"))
def plan(
    spec: Annotated[Path, typer.Argument(help="TOML file: privacy, rounds, and a table for every task.")],
    out: Out = None,
    report: Page = None,
    engines: Annotated[Path | None, typer.Option(help="Write every scale, for other engines (JSON).")] = None,
) -> None:
    """Share one budget among all released tasks, with the least error."""
    result = _solve(spec, "Plan", out, report, engines=engines)
    if engines is not None:
        from mechdesign.evidence.files import write_whole

        write_whole(engines, json.dumps(result.mechanism.engines(), indent=1, ensure_ascii=False) + "\n")
        typer.echo(f"written to {engines}")


@app.command(epilog=examples("release plan.json answers.csv --ledger ledger.jsonl -o noisy.csv"))
def release(
    plan: Annotated[Path, typer.Argument(help="Result file of a plan.")],
    answers: Annotated[
        Path, typer.Argument(help="The true answers (CSV): a column a task, its numbers from the top.")
    ],
    ledger: Annotated[Path | None, typer.Option(help="Count it there, before any noise is drawn.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File for the noisy answers (CSV), instead of the terminal."),
    ] = None,
    modules: Modules = None,
) -> None:
    """Answer all tasks of a plan with noise: one of its rounds, exact, for deployment.

    A histogram has a row per bin, a choice a row per candidate, a quantile a row per person; a mean under add-remove neighbours has two, the sum and the count. Faults of plan, answers or
    ledger are reported before anything is drawn. With a ledger the last column holds the hash of the entry.
    """
    from mechdesign.evidence.files import write_whole
    from mechdesign.evidence.results import Result
    from mechdesign.plan.ledger import Ledger
    from mechdesign.plan.mechanism import PlannedRelease

    _check_outputs(plan, answers, ledger=ledger, out=out)
    result, _, failed, _ = _checked(plan, modules)
    mechanism = result.mechanism if isinstance(result, Result) else None
    if failed or not isinstance(result, Result) or not isinstance(mechanism, PlannedRelease):
        raise DesignError(f"{plan}: {'; '.join(failed) or 'must be the result of a plan (mechdesign plan)'}")
    held = None if ledger is None else Ledger(ledger)
    found = result.release(_columns(answers, [*mechanism.tasks, *mechanism.chosen]), ledger=held)
    given = found if held is None else found.answer
    columns = {name: x.tolist() if hasattr(x, "tolist") else [x] for name, x in given.items()}
    if held is not None:
        columns["ledger hash"] = [found.hash]
        typer.echo(f"entry {found.entry} of {ledger}, round {found.round} of {mechanism.rounds}", err=True)
    elif mechanism.rounds > 1:
        typer.echo(f"one of {mechanism.rounds} rounds, which nothing counts without --ledger", err=True)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerows([list(columns), *itertools.zip_longest(*columns.values(), fillvalue="")])
    try:
        if out is not None:
            write_whole(out, text.getvalue())
            typer.echo(f"written to {out}")
            return
    except OSError as error:  # the ledger has counted the release: it must not be lost
        typer.echo(f"error: {out}: {error.strerror}; the answers are here instead", err=True)
    typer.echo(text.getvalue(), nl=False)


def _columns(path: Path, names: list[str]) -> dict[str, list[float]]:
    """Return the numbers of each column of a CSV file, which must have exactly these columns."""
    from mechdesign.evidence.files import number_of, whole_text

    try:
        head, *rows = csv.reader(io.StringIO(whole_text(path), newline=""), strict=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, csv.Error):
        raise DataError(f"{path}: must be a CSV file in UTF-8 with a column a task") from None
    if sorted(head) != sorted(names):
        head = [name.strip() for name in head]
    if sorted(head) != sorted(names):
        missing = [name for name in names if name not in head]
        left = f"without a column are {missing}, and {len(set(head) - {*names})} columns are of no task"
        left += ", and some are there twice" if len(set(head)) < len(head) else ""
        raise DataError(f"{path}: must have one column for each of the plan's tasks: {left}")
    found: dict[str, list[float]] = {name: [] for name in head}
    for at, row in enumerate(rows, 2):
        DataError.when(len(row) > len(head), f"{path}, line {at}: has more numbers than columns")
        for name, text in zip(head, row):
            if not text.strip():
                continue
            DataError.when(len(found[name]) < at - 2, f"{path}, line {at}: {name} has an empty row above")
            with DataError.where(f"{path}, line {at}: {name} must be a number", ValueError):
                found[name].append(number_of(text))
    return {name: x[0] if len(x) == 1 else x for name, x in found.items()}  # type: ignore[misc]
