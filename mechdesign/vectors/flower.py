"""Federated learning with Flower: clients send their updates as private messages, the server adds up and decodes.

A client's ``fit`` returns `flower_update` of its update of the parameters; `flower_strategy` is the strategy of the server. Each time it is asked,
a client sends a message of one vector, which consumes the mechanism's budget for all of the client's data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from mechdesign.errors import DataError, DesignError, MissingExtra
from mechdesign.problem.checks import answers, generator, instance, integer, number
from mechdesign.typing import Array, Numbers, Randomness
from mechdesign.vectors.coded import CodedMechanism


def flower_update(mechanism: CodedMechanism, update: Sequence[Numbers]) -> list[Array]:
    """Return a client's update, all arrays as one vector, as a private message, which Flower's ``fit`` returns instead of parameters.

    Vectors that are too long are shortened.

    Parameters
    ----------
    mechanism : SphereQuantizer, RandomDirections, SampledSigns or SampledCoordinates
    update : list of arrays
        As many numbers together as the mechanism's dimension.

    Examples
    --------
    >>> import mechdesign as md
    >>> mechanism = md.SphereQuantizer(6, 2, md.PureDP(4.0))
    >>> [part.shape for part in flower_update(mechanism, [np.ones((2, 2)), np.ones(2)])]
    [(33,)]
    """
    instance("mechanism", mechanism, CodedMechanism)
    if not isinstance(update, list | tuple) or not update:
        raise DataError("update: must be a list of arrays")
    vector = np.concatenate([answers("update", part).ravel() for part in update])
    return [np.frombuffer(mechanism.encode(vector, clip=True), dtype=np.uint8)]


def flower_strategy(
    mechanism: CodedMechanism,
    clients: int,
    *,
    rate: float = 1.0,
    times: int = 1,
    rng: Randomness = None,
    **options: object,
) -> Any:
    """Return a Flower strategy that adds the mean of private updates to the parameters.

    In every round it asks `clients` clients, at random among those asked fewer than `times` times: a client consumes
    at most `times` times the mechanism's ε. A message that is damaged, or does not hold one vector, is left out and counted.

    Parameters
    ----------
    mechanism : SphereQuantizer, RandomDirections, SampledSigns or SampledCoordinates
        Mechanism whose dimension is the number of parameters.
    clients : int
        Clients per round.
    rate : float
        Factor of the mean; negative for gradients.
    times : int
    rng : seed or numpy Generator, optional
        Randomness of the choice of clients.
    **options
        Options of Flower's ``FedAvg``: ``initial_parameters``, ``min_available_clients``, ``evaluate_fn``, …

    Raises
    ------
    MissingExtra
        Flower is not installed.
    """
    instance("mechanism", mechanism, CodedMechanism)
    count, most, step = integer("clients", clients, 1), integer("times", times, 1), number("rate", rate)
    source = generator(rng)
    try:
        common, strategies = import_module("flwr.common"), import_module("flwr.server.strategy")
    except ImportError:
        raise MissingExtra.of("flower", "a strategy for Flower", "flwr") from None

    def message(result: Any) -> bytes:
        try:
            (part,) = common.parameters_to_ndarrays(result.parameters)
            return np.asarray(part, dtype=np.uint8).tobytes()
        except Exception:  # anything else that a client sends counts as a damaged message
            return b""

    class PrivateMean(strategies.FedAvg):  # type: ignore[misc,name-defined]
        """Strategy that decodes the sum of all messages of a round."""

        def __init__(self) -> None:
            super().__init__(**options)
            self.asked, self.seen, self.damaged = Counter[Any](), 0, 0
            self.shapes: list[Array] = []

        def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
            self.shapes = common.parameters_to_ndarrays(parameters)
            if (size := sum(part.size for part in self.shapes)) != mechanism.dimension:
                raise DesignError(
                    f"parameters of {size} numbers: the mechanism's dimension is {mechanism.dimension}"
                )
            client_manager.wait_for(self.min_available_clients)
            held = client_manager.all()
            free = [key for key in sorted(held) if self.asked[key] < most]
            chosen = [free[i] for i in source.permutation(len(free))[:count]]
            self.asked.update(chosen)
            return [(held[key], common.FitIns(parameters, {})) for key in chosen]

        def aggregate_fit(
            self, server_round: int, results: list[Any], failures: list[Any]
        ) -> tuple[Any, dict[str, Any]]:
            total, seen, skipped = mechanism.aggregate(
                [message(result) for _, result in results], vectors=1, skip_damaged=True
            )
            self.seen, self.damaged = self.seen + seen, self.damaged + len(skipped)
            said = {"messages": seen, "damaged": len(skipped), "failures": len(failures)}
            if not seen:
                return None, said
            ends = np.cumsum([part.size for part in self.shapes])[:-1]
            steps = np.split(step * total / seen, ends)
            new = [(old + part.reshape(old.shape)).astype(old.dtype) for old, part in zip(self.shapes, steps)]
            return common.ndarrays_to_parameters(new), said

    return PrivateMean()
