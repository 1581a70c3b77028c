"""Mechanisms that answer a question, by name: how each is solved in the time of a comparison, and what it assumes; errors of one, and its least ε.

The searches run with less effort than their designs' defaults, so that a comparison takes seconds: one start for
searched outputs, a relative gap of 1e-4 for optimal quantizers, a few seconds for optimal noise, which starts from the
calibrated families. Solve the design itself (``comparison["..."].design.solve()``) for the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import numpy as np

from mechdesign.channels.channel import Channel, Response
from mechdesign.channels.linear_design import PUBLISHED
from mechdesign.channels.linear_proofs import LISTED
from mechdesign.channels.linear_report import histogram
from mechdesign.channels.responses import ClusteredResponse, KaryResponse, planar_laplace
from mechdesign.checks import instance, one_of, positive, probability, refuse
from mechdesign.choice.optimum import PrivateChoice
from mechdesign.choice.rule import RULES
from mechdesign.choice.rule import Asked as RulePrivacy
from mechdesign.choose import questions
from mechdesign.choose.clipping import at_best_range
from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, SolverError
from mechdesign.evidence.exact import least_kept
from mechdesign.evidence.results import Accuracy, Result, SolveReport
from mechdesign.noise.allocation import NoiseAllocation
from mechdesign.noise.calibration import Calibration
from mechdesign.noise.correlated import CorrelatedGaussian
from mechdesign.noise.families import FAMILIES
from mechdesign.noise.knorm import KNorm
from mechdesign.noise.optimal import OptimalNoise
from mechdesign.problem.priors import ClippedPrior
from mechdesign.problem.privacy import (
    ApproximateDP,
    CentralPrivacy,
    MetricDP,
    Privacy,
    PureDP,
    ZeroConcentratedDP,
)
from mechdesign.problem.spine import Design, Law
from mechdesign.quantizers.bins import BinSearch
from mechdesign.quantizers.families import ERM, RQM
from mechdesign.quantizers.mechanism import duchi
from mechdesign.quantizers.mvu import MVU
from mechdesign.quantizers.optimal import OptimalQuantizer
from mechdesign.quantizers.optm import OPTM
from mechdesign.solvers.deadline import Deadline
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Status
from mechdesign.user_level.histogram import NAMES
from mechdesign.user_level.linear_release import EMDPrivacy

_REACH = 2.5
"""Reach of searched outputs, relative to the least reach of an unbiased report."""


@dataclass(frozen=True)
class Candidate:
    """A mechanism to try.

    Attributes
    ----------
    solve : callable
        (question, privacy, deadline) → Result; raises one of the package's errors if the mechanism does not apply, or
        nothing was found in time.
    assumes : str
        Assumptions in addition to the question.
    last : bool
        Whether it starts from the other mechanisms' results, which `solve` then takes, by name, as its fourth argument.
    together : bool
        Whether its noise on several numbers is dependent.
    """

    solve: Callable[..., Result]
    assumes: str = ""
    last: bool = False
    together: bool = False


def candidates(question: questions.Question) -> dict[str, Candidate]:
    """Return the mechanisms that may answer a question, by name."""
    return _KNOWN[question.asks]


def register(
    name: str,
    question: type[questions.Question],
    designs: Callable[..., Design | Iterable[Design]],
    *,
    assumes: str = "",
) -> None:
    """Let `compare`, `accuracy` and `least_epsilon` try a mechanism of one's own.

    Parameters
    ----------
    name : str
        Its name in tables; a registered mechanism of this name is replaced.
    question : type
        `NumericQuery`, `LocalReport`, `CategoryReport`, `MetricReport`, `HistogramOfUsers` or `ChoiceQuestion`.
    designs : callable
        ``designs(question, privacy)`` returns the design that answers, or several of which the best is taken; it raises
        `DesignError` if the mechanism does not apply. Before the result is ranked, it is checked against the question, the privacy
        and its own proofs.
    assumes : str
        Assumptions of the mechanism besides the question.

    Examples
    --------
    >>> from mechdesign.noise.knorm import KNorm
    >>> from mechdesign.choose.questions import NumericQuery
    >>> register("cube", NumericQuery, lambda q, privacy: KNorm(q.dimension, privacy, q.sensitivity, norm=float("inf")))
    >>> candidates(NumericQuery())["cube"].assumes
    ''
    >>> _ = candidates(NumericQuery()).pop("cube")
    """
    refuse(not isinstance(name, str) or not name, "name", name, "must be a text")
    if not any(question is one for one in get_args(questions.Question)):
        kinds = ", ".join(kind.__name__ for kind in get_args(questions.Question))
        raise DesignError.of("question", question, f"must be one of {kinds}")
    if not callable(designs):
        raise DesignError.of("designs", designs, "must be a function of a question and a privacy requirement")
    instance("assumes", assumes, str)

    def solve(asked: questions.Question, privacy: Privacy, deadline: Deadline) -> Result:
        found = _best(designs(asked, privacy), deadline)
        asked.check(name, found)
        questions.check_same_privacy(name, found, privacy)
        if found.certificate is None or not found.certificate.verify():
            raise DesignError(f"{name}: its own proofs do not hold")
        return found

    _KNOWN[question.asks][name] = Candidate(solve, assumes)


def solved(
    name: object,
    question: questions.Question,
    privacy: Privacy,
    deadline: Deadline | None = None,
    others: Mapping[str, Result] | None = None,
) -> Result:
    """Solve one of the candidates as well as possible until the deadline; `others` are results of other candidates."""
    questions.checked_question(question).check_privacy(privacy)
    known = candidates(question)
    if not isinstance(name, str) or name not in known:
        raise DesignError.of("mechanism", name, f"must be one of {', '.join(known)}")
    further = (others,) if known[name].last else ()
    if isinstance(question, questions.LocalReport) and question.clients is not None:
        return _of_mean(name, question, privacy, Deadline.of(deadline))
    return known[name].solve(question, privacy, Deadline.of(deadline), *further)


def _of_mean(name: str, q: questions.LocalReport, privacy: Any, deadline: Deadline) -> Result:
    """Return the mechanism at the clipping range best for the mean; searched outputs also at the best number of bits."""

    def solve(bits: int, ends: tuple[float, float]) -> Result:
        return candidates(q)[name].solve(replace(q.within(*ends), bits=bits), privacy, deadline)

    least = 1 if name == _SEARCHED else q.bits
    return at_best_range(q.mean, duchi(privacy.epsilon), solve, range(least, q.bits + 1), q.clip)


def _best(
    made: Design | Iterable[Design], deadline: Deadline, most: float = math.inf, **options: Any
) -> Result:
    """Solve designs until the deadline, each in `most` seconds, and return the best result; raise the reason if none has an answer."""
    found: list[Result] = []
    reason: MechdesignError = InfeasibleError("there is no design")
    held = len(deadline.failures)
    for count, design in enumerate(made if isinstance(made, Iterable) else (made,)):
        if count and deadline.passed:
            break
        try:
            found.append(design.solve(time_limit=deadline.limit(most=most), **options))
        except (InfeasibleError, SolverError) as error:
            reason = reason if count else error
            if isinstance(error, SolverError):
                deadline.failed(error, f"the best of the other {type(design).__name__} designs is used")
    if not found:
        raise reason
    best = min(found, key=lambda result: result.value)
    return replace(best, notes=(*best.notes, *deadline.failures[held:]))


def _designed(
    designs: Callable[..., Design | Iterable[Design]],
    assumes: str = "",
    *,
    together: bool = False,
    **solved: Any,
) -> Candidate:
    """Return the candidate that solves ``designs(question, privacy)`` with these options of `_best`."""
    return Candidate(
        lambda q, privacy, deadline: _best(designs(q, privacy), deadline, **solved),
        assumes,
        together=together,
    )


def _stated(design: Design, law: Law) -> Result:
    """Return the result of a law in closed form."""
    report = SolveReport("closed form", Status.FEASIBLE)
    return Result(design, law.mechanism, law.value, None, report, proofs=law.proofs)


# Noise ---------------------------------------------------------------------------------------------------------


def _calibrated(family: str, q: questions.NumericQuery, privacy: CentralPrivacy) -> Calibration:
    refuse(FAMILIES[family].discrete and not q.integer, "integer", q.integer, _FOR_COUNTS)
    changes = q.bounds if isinstance(q.sensitivity, tuple) else q.sensitivity
    return Calibration(family, privacy, changes, q.dimension, q.loss, q.rounds, q.sampling_rate)


def _optimal_noise(
    q: questions.NumericQuery,
    privacy: CentralPrivacy,
    deadline: Deadline,
    others: Mapping[str, Result] | None,
) -> Result:
    """Return the best independent noise within `_SECONDS`; it is at least as good as every family calibrated before."""
    design = _optimal(q, privacy)
    dense = {name for name, family in FAMILIES.items() if not family.discrete}
    laws = {name: result.mechanism.law for name, result in (others or {}).items() if name in dense}
    starts = None if others is None else laws
    return design.solve(gap=5e-3, time_limit=deadline.limit(most=_SECONDS), starts=starts)


def _optimal_integer_noise(q: questions.NumericQuery, privacy: CentralPrivacy) -> OptimalNoise:
    refuse(not q.integer, "integer", q.integer, _FOR_COUNTS)
    return _optimal(q, privacy, whole=True)


def _check_once(q: questions.NumericQuery, noise: str, remedy: str = "") -> None:
    """Raise DesignError unless the question has one round without sampling."""
    refuse(q.rounds > 1, "rounds", q.rounds, f"{noise} is for one round{remedy}")
    refuse(q.sampling_rate < 1, "sampling_rate", q.sampling_rate, f"{noise} is for everybody, not sampled")


def _optimal(q: questions.NumericQuery, privacy: Any, *, whole: bool = False) -> OptimalNoise:
    if isinstance(privacy, ZeroConcentratedDP):
        raise DesignError.of("privacy", privacy, "optimal noise is known for pure and approximate privacy")
    _check_once(
        q,
        "optimal noise",
        ": ask for the numbers of all rounds at once, rounds times the dimension and the numbers that change",
    )
    return OptimalNoise(privacy, q.bounds, q.loss, q.dimension, integer=whole)


def _allocated(noise: str, q: questions.NumericQuery, privacy: Any) -> NoiseAllocation:
    s = q.bounds
    refuse(s.each is None, "each", None, "is what noise is allocated by: Sensitivity(each=...)")
    _check_once(q, "allocated noise")
    return NoiseAllocation(noise, s, privacy, loss=2 if q.loss == "squared" else 1)


def _correlated(q: questions.NumericQuery, privacy: Any) -> CorrelatedGaussian:
    s = q.bounds
    _check_once(q, "correlated noise")
    refuse(q.loss != "squared", "loss", q.loss, "correlated noise is chosen by its variance: squared")
    allowed = f"correlated noise on more than {_CORRELATED} numbers is not formed"
    refuse(q.dimension > _CORRELATED, "dimension", q.dimension, allowed)
    if q.changes is not None:
        return CorrelatedGaussian(q.changes, privacy)
    listed = s.each is not None and s.boxed(q.dimension)
    many = listed and q.dimension * s.corner_count(q.dimension) > _LISTED
    remedy = "has too many corners to be compared: solve CorrelatedGaussian.of_sensitivity"
    refuse(many, "sensitivity", str(s), remedy)
    return CorrelatedGaussian.of_sensitivity(s, q.dimension, privacy)


def _knorm(q: questions.NumericQuery, privacy: Any) -> KNorm:
    allowed = "is one number, of which every norm is the same: staircase noise"
    refuse(q.dimension == 1, "dimension", 1, allowed)
    refuse(q.sampling_rate < 1, "sampling_rate", q.sampling_rate, "K-norm noise is for all, not sampled")
    return KNorm(q.dimension, privacy, q.sensitivity, loss=q.loss, rounds=q.rounds)


_SECONDS = 2.0
"""Time limit of optimal noise, unless a shorter one is given."""
_CORRELATED = 700
_LISTED = 200_000
"""Most entries of a list of changes: milliseconds, and a file of a few megabytes."""
_WHOLE = "the numbers are whole"
_FOR_COUNTS = "is noise on the integers: for counts, NumericQuery(integer=True)"
_NOISE: dict[str, Candidate] = {
    "optimal noise": Candidate(_optimal_noise, last=True),
    **{
        name: _designed(partial(_calibrated, name), _WHOLE if family.discrete else "")
        for name, family in FAMILIES.items()
    },
    # after the families, whose law it may turn out to be
    "optimal integer noise": _designed(_optimal_integer_noise, _WHOLE, most=_SECONDS, gap=1e-6),
    "allocated gaussian": _designed(partial(_allocated, "gaussian"), "a scale for each coordinate"),
    "allocated laplace": _designed(partial(_allocated, "laplace"), "a scale for each coordinate"),
    "allocated mixed": _designed(
        partial(_allocated, "mixed"), "a type and a scale for each coordinate", most=3.0
    ),
    "correlated gaussian": _designed(
        _correlated, "noise that is not independent", together=True, most=_SECONDS
    ),
    "k-norm": _designed(_knorm, "noise that is not independent", together=True),
}


# Reports -------------------------------------------------------------------------------------------------------


def _reach(q: questions.LocalReport, privacy: PureDP) -> float:
    """Return the largest absolute output: `_REACH` times the reach of two unbiased outputs."""
    low, high = q.input_range
    half = (high - low) / 2 / np.tanh(privacy.epsilon / 2)
    return float(max(abs((low + high) / 2 - _REACH * half), abs((low + high) / 2 + _REACH * half)))


def _searched(
    q: questions.LocalReport, privacy: PureDP, deadline: Deadline, symmetric: bool | None = None
) -> Result:
    """Search outputs for inputs centred at zero, where symmetry is recognised; then solve for the actual inputs with these outputs, shifted back."""
    about, centre = _about_zero(q)
    bins = BinSearch(q.outputs, _reach(about, privacy), starts=1, symmetric=symmetric)
    found = OptimalQuantizer(bins, privacy, about.prior, q.loss, input_range=about.input_range).solve(
        gap=1e-4, time_limit=deadline.limit(), certify=not centre
    )
    if not centre:
        return found
    outputs = centre + found.mechanism.bins
    return OptimalQuantizer(outputs, privacy, q.prior, q.loss, input_range=q.input_range).solve(gap=1e-5)


def _about_zero(q: questions.LocalReport) -> tuple[questions.LocalReport, float]:
    """Return the question with inputs centred at zero, and the centre."""
    low, high = q.input_range
    centre, half = low / 2 + high / 2, (high - low) / 2
    if isinstance(q.prior, ClippedPrior) and abs((mean := float(q.prior.law.mean())) - centre) < 1e-9 * half:
        centre = mean  # about which the law may be symmetric
    if not centre:
        return q, 0.0
    half *= 1 - 1e-12
    prior = q.prior.standardised(centre, 1.0)
    if isinstance(prior, ClippedPrior):
        prior = prior.clip(-half, half)
    start, stop = prior.support
    return replace(q, prior=prior, input_range=(min(start, -half), max(stop, half))), centre


def _spread(q: questions.LocalReport, privacy: PureDP) -> Iterator[OptimalQuantizer]:
    for outputs in _even(q, privacy):
        yield OptimalQuantizer(outputs, privacy, q.prior, q.loss, input_range=q.input_range)


def _even(q: questions.LocalReport, privacy: PureDP) -> list[Array]:
    """Return evenly spaced outputs at several reaches, from the least reach of an unbiased report outwards.

    At 1.25 times that reach alone the error is 1% larger in 3 of 7 comparisons of the deployed grid, 13% at most.
    """
    low, high = q.input_range
    centre, half = (low + high) / 2, (high - low) / 2 / np.tanh(privacy.epsilon / 2)
    return [centre + t * half * np.linspace(-1, 1, q.outputs) for t in (1 + 1e-9, 1.1, 1.25, 1.5)]


def _optm(q: questions.LocalReport, privacy: PureDP, deadline: Deadline) -> Result:
    outputs = _even(q, privacy)[1:3]
    if q.bits <= 3:  # a search of seconds; the places of more outputs matter less
        third = deadline.part(1 / 3)
        # for a callable loss OPTM minimises the absolute one, whose integrals are closed forms
        asked = q if q.loss.function is None else replace(q, loss="absolute")
        # OPTM's families are symmetric, so that asymmetric outputs are worse for it
        mirrored = q.input_range[0] == -q.input_range[1] and q.prior.symmetric()
        try:
            outputs.append(_searched(asked, privacy, third, mirrored or None).mechanism.bins)
        except SolverError:
            if not third.passed:
                raise
    return _best((OPTM(bins, privacy, q.prior, q.loss, q.input_range) for bins in outputs), deadline)


def _family(kind: type[RQM] | type[ERM], q: questions.LocalReport, privacy: PureDP) -> Iterator[RQM | ERM]:
    """Yield designs of several numbers of outputs: fewer are allowed, and more are not always better.

    Without the four outputs the error is 1% larger in 3 of 10 comparisons of the deployed grid, 21% at most.
    """
    for m in sorted({min(4, q.outputs), q.outputs}):
        yield kind(m, privacy, q.prior, loss=q.loss, input_range=q.input_range)


def _mvu(q: questions.LocalReport, privacy: PureDP) -> MVU:
    return MVU(q.outputs, privacy, q.input_range, prior=q.prior, loss=q.loss)


_SEARCHED = "optimal, searched outputs"
_QUANTIZERS: dict[str, Candidate] = {
    _SEARCHED: Candidate(_searched),
    "optimal, even outputs": _designed(_spread, gap=1e-5),
    "OPTM": Candidate(_optm),
    "MVU": _designed(_mvu, "inputs rounded at random to a grid", starts=1),
    "RQM": _designed(partial(_family, RQM), "even outputs"),
    "ERM": _designed(partial(_family, ERM), "even inner outputs"),
}


def fewest(result: Result) -> float:
    """Return the bits of a report of a number or of a category; NaN for others."""
    law, asks = result.mechanism, result.design.asks
    if asks not in ("report", "categories"):
        return math.nan
    return float(math.ceil(math.log2(len(law.bins) if asks == "report" else law.outputs)))


# Points of a metric space --------------------------------------------------------------------------------------


def _published(
    make: Callable[[MetricSpace, float, float | None], Any], assumes: str = "", *, remapped: bool = False
) -> Candidate:
    """Return the candidate that makes a published channel exact and certifies it for the question's own loss."""

    def solve(q: questions.MetricReport, privacy: MetricDP, deadline: Deadline) -> Result:
        design, channel = q.design(privacy.epsilon), make(q.space, privacy.epsilon, deadline.limit())
        if remapped:
            channel = channel.remapped(design.losses, design.weights)
        return _stated(design, design.repaired(channel.dense, deadline=deadline))

    return Candidate(solve, assumes)


def _exponential(space: MetricSpace, alpha: float, limit: float | None) -> Channel:
    return Channel.exponential(space, alpha, time_limit=limit)


def _planar(space: MetricSpace, alpha: float, _: float | None) -> Channel:
    return planar_laplace(space, alpha)


def _kary(space: MetricSpace, alpha: float, _: float | None) -> Response:
    apart = space.distances[~np.eye(space.size, dtype=bool)]
    return KaryResponse(space.size, alpha * float(apart.min()))


_PLACES = "places in the plane or on the sphere"
_CHANNELS: dict[str, Candidate] = {
    "optimal channel": _designed(lambda q, privacy: q.design(privacy.epsilon)),
    "exponential mechanism": _published(lambda s, a, _: Channel.exponential(s, a, calibrated=False)),
    "exponential, calibrated": _published(_exponential),
    "exponential, remapped": _published(_exponential, "the prior", remapped=True),
    "k-ary response": _published(_kary),
    "clustered response": _published(lambda s, a, _: ClusteredResponse(s, a), "a clustered space"),
    "planar Laplace": _published(_planar, _PLACES),
    "planar Laplace, remapped": _published(_planar, f"{_PLACES}, the prior", remapped=True),
}

# Categories ----------------------------------------------------------------------------------------------------


def _optimal_report(q: questions.CategoryReport, privacy: PureDP, deadline: Deadline) -> Result:
    exact = q.categories <= LISTED or histogram(q.workload)  # type: ignore[operator]
    return _best(q.design(privacy), deadline, gap=None if exact else 0.01)


def _known(name: str, q: questions.CategoryReport, privacy: PureDP, _: Deadline) -> Result:
    return q.design(privacy).answered_by(name)


_CATEGORIES: dict[str, Candidate] = {
    "optimal report": Candidate(_optimal_report),
    **{name: Candidate(partial(_known, name)) for name in PUBLISHED},
}

# Choices -------------------------------------------------------------------------------------------------------


def _optimal_choice(q: questions.ChoiceQuestion, privacy: RulePrivacy) -> PrivateChoice:
    allowed = "must be given: of scores without bounds there is no optimal table"
    refuse(q.largest is None, "largest", None, allowed)
    return q.design(privacy)


def _chosen_by(rule: str, q: questions.ChoiceQuestion, privacy: RulePrivacy, _: Deadline) -> Result:
    design = replace(q, largest=None).design(privacy)
    return _stated(design, design.by(rule))


_KNOWN: dict[str, dict[str, Candidate]] = {
    "numbers": _NOISE,
    "report": _QUANTIZERS,
    "places": _CHANNELS,
    "categories": _CATEGORIES,
    "users": {name: _designed(lambda q, privacy, by=by: q.design(privacy, by)) for by, name in NAMES.items()},
    "choice": {
        "optimal table": _designed(_optimal_choice, "counts"),
        **{rule: Candidate(partial(_chosen_by, rule)) for rule in RULES},
    },
}


# One mechanism --------------------------------------------------------------------------------------------------

MEASURES = ("standard_deviation", "absolute_error", "half_width")


def accuracy(
    mechanism: Result | str, question: questions.Question | None = None, privacy: Privacy | None = None
) -> Accuracy:
    """Return how accurate a mechanism is.

    Parameters
    ----------
    mechanism : Result, or the name of one of `compare`'s mechanisms
        A name needs question and privacy: ``md.accuracy("gaussian", query, md.ApproximateDP(1, 1e-6))``.
    question : NumericQuery, LocalReport, CategoryReport, MetricReport or ChoiceQuestion, optional
        Question that the result must answer; its prior averages the errors of reports. By default the result's own.
    privacy : optional
        Privacy for which the result must have been made.

    Raises
    ------
    DesignError
        A mechanism that does not answer the question (the message lists those that do), or one whose errors are not known.
    """
    if isinstance(mechanism, Result):
        if question is not None:
            questions.checked_question(question).check("mechanism", mechanism)
        if privacy is not None:
            questions.check_same_privacy("mechanism", mechanism, privacy)
        return mechanism.errors(question)
    allowed = "must be a result, or the name of one of compare's mechanisms"
    refuse(not isinstance(mechanism, str), "mechanism", mechanism, allowed)
    if question is None or privacy is None:
        raise DesignError.of("mechanism", mechanism, "is a name: give the question and the privacy too")
    return solved(mechanism, question, privacy).errors(question)


def least_epsilon(
    mechanism: str,
    question: questions.Question,
    *,
    error: float,
    measure: str = "standard_deviation",
    delta: float = 0.0,
) -> float:
    """Return the least ε (α for a metric space) at which a mechanism's error is at most `error`.

    Parameters
    ----------
    mechanism : str
        Name of one of `compare`'s mechanisms.
    question : NumericQuery, LocalReport, CategoryReport, MetricReport or ChoiceQuestion
    error : float
        Largest error allowed, in the question's own units.
    measure : {"standard_deviation", "absolute_error", "half_width"}
    delta : float
        δ of the requirement (numeric queries).

    Returns
    -------
    float
        Accurate to a relative 1e-4, rounded to the side where the error is small enough; at least 1e-14 (.001 for a `CategoryReport`).

    Raises
    ------
    InfeasibleError
        No ε up to 1000 (20 for a `CategoryReport`) makes the error that small.

    Examples
    --------
    >>> import mechdesign as md
    >>> round(md.least_epsilon("laplace", md.NumericQuery(), error=2.0, measure="absolute_error"), 3)
    0.5
    """
    error, delta = positive("error", error), probability("delta", delta, below_one=True)
    one_of("measure", measure, MEASURES)

    def over(log_epsilon: float) -> float:
        privacy = _privacy(question, math.exp(log_epsilon), delta)
        found = solved(mechanism, question, privacy).errors(question)
        return math.log(max(getattr(found, measure), 1e-300) / error)

    fewest, most = questions.checked_question(question).epsilons
    least = least_kept(over, 0.0, least=math.log(fewest), most=math.log(most), xtol=5e-5, rtol=1e-6)
    allowed = f"{mechanism}: no epsilon up to {most:g} brings the {measure} down to {error:g}"
    InfeasibleError.when(math.isinf(least), allowed)
    return math.exp(least)


def _privacy(question: questions.Question, epsilon: float, delta: float) -> Privacy:
    if isinstance(question, questions.HistogramOfUsers):
        return question.check_privacy(EMDPrivacy(epsilon, delta))  # type: ignore[no-any-return]
    if isinstance(question, questions.MetricReport):
        return MetricDP(epsilon)
    return ApproximateDP(epsilon, delta) if delta else PureDP(epsilon)
