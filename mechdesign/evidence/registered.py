"""Laws and losses of a user's own, which files hold by the name that the user's program registers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from scipy import stats

from mechdesign.errors import DesignError

__all__ = ["LAWS", "LOSSES", "UnavailableCallable", "law_name", "register_law", "register_loss"]

LAWS: dict[str, Any] = {}
LOSSES: dict[str, Callable[[Any], Any]] = {}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")


def register_law(name: str, generator: Any) -> None:
    """Let frozen laws of a custom `generator` survive saving, as `name`.

    A file holds the name and the parameters; a program that reads it registers the same name first.

    Parameters
    ----------
    name : str
    generator : scipy.stats.rv_continuous or rv_discrete
        An instance of a subclass of your own, which freezes to the law.

    Raises
    ------
    DesignError
        No such instance; a name that SciPy or this package has given to a law of its own.

    Examples
    --------
    >>> class Triangle(stats.rv_continuous):
    ...     def _pdf(self, x):
    ...         return 2 * x
    >>> register_law("my-triangle", Triangle(a=0, b=1, name="my-triangle"))
    """
    _check_name(name)
    kinds = (stats.rv_continuous, stats.rv_discrete, stats.rv_histogram)
    if not isinstance(generator, kinds[:2]) or type(generator) in kinds:
        raise DesignError.of(
            "generator", generator, "must be an instance of a subclass of rv_continuous or rv_discrete"
        )
    ours, held = _ours(generator), LAWS.get(name)
    if not ours and (hasattr(stats, name) or (held is not None and _ours(held))):
        raise DesignError.of("name", name, "is the name of another law already; choose one of your own")
    LAWS[name] = generator


def register_loss(name: str, function: Callable[[Any], Any]) -> None:
    """Let a loss given as a function survive saving, as `name`: a result loaded where it is registered has it again.

    Raises
    ------
    DesignError
        No name, that of a loss of this package, or no function.

    Examples
    --------
    >>> register_loss("quartic", lambda t: t**4)
    """
    _check_name(name)
    if name in ("absolute", "squared"):
        raise DesignError.of("name", name, "is a loss of this package already; choose a name of your own")
    if not callable(function):
        raise DesignError.of("function", function, "must be a function of an array of errors")
    LOSSES[name] = function


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DesignError.of("name", name, "must be 1 to 80 letters, digits, dots, dashes or underscores")


def _ours(generator: Any) -> bool:
    return type(generator).__module__.startswith("mechdesign.noise.laws.")


@dataclasses.dataclass(frozen=True)
class UnavailableCallable:
    """Stands for a function that a result was made with; functions are not stored in files."""

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.name.startswith("@"):
            name = self.name[1:]
            raise DesignError(
                f"the loss {name!r} is not registered in this program: md.register_loss({name!r}, function), "
                "then load the file again"
            )
        raise DesignError(
            f"the function {self.name} was not stored in the result file: pass it again, or register it with "
            "md.register_loss before it is saved"
        )


def law_name(law: Any) -> str:
    for name, generator in LAWS.items():
        if type(law.dist) is type(generator) and (_ours(generator) or _made(law.dist) == _made(generator)):
            return name
    name = law.dist.name
    if type(law.dist) is type(
        getattr(stats, name, None)
    ):  # not by its name alone: anyone can call a law "uniform"
        return str(name)
    raise DesignError(
        f"the law {name!r} is neither in scipy.stats nor registered: md.register_law(name, generator) lets it be stored"
    )


def _made(generator: Any) -> str:
    """What an instance of a user's class was made with: two of them are two laws."""
    return repr(sorted(generator._updated_ctor_param().items()))
