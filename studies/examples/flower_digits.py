"""Federated learning with Flower: clients encode their updates privately in a few bits, the server decodes and adds up.

    python studies/examples/flower_digits.py [--rounds 30] [--epsilon 8] [--bits 9] [--clients 1200] [--loop]

Softmax regression on scikit-learn's digits, spread over simulated clients that hold a few records each. In every round each client
takes one gradient of all its records, as one vector of 650 numbers clipped at length 1, and sends the code of a
rotated simplex: two bytes, ε for everything that the client has, per round. A client is asked once: 30 rounds of 40 clients are 1,200 of
them, so that ε in all is ε in a round.

A `ClientApp` encodes and a `ServerApp` decodes, in Flower's own simulation (`flwr.simulation.run_simulation`, with Ray): clients run in
processes of their own, and what passes between them are Flower's messages. With `--loop`, or where Ray is absent, the same client and strategy are
driven one after the other in this process. In a deployment both apps are used as they are.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np

import mechdesign as md

CLASSES, FEATURES = 10, 64
SIZE = CLASSES * (FEATURES + 1)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Digits with a column of ones, rows of length 1."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = np.hstack([x / 16.0, np.ones((len(x), 1))])
    return x / np.sqrt((x**2).sum(axis=1, keepdims=True)), y


def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy; shape (650,)."""
    logits = x @ weights.reshape(FEATURES + 1, CLASSES)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    odds[np.arange(len(y)), y] -= 1
    return (x.T @ odds / len(y)).ravel()


def accuracy(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Share of digits that are read right."""
    return float(((x @ weights.reshape(FEATURES + 1, CLASSES)).argmax(axis=1) == y).mean())


def split(clients: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Records and labels, the first 297 of a random order kept for testing, and each client's numbers of the others."""
    x, y = data()
    order = np.random.default_rng(seed).permutation(len(x))
    return x[order], y[order], np.array_split(np.arange(297, len(x)), clients)


def clipped_gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A client's gradient, of length 1 at most."""
    step = gradient(weights, x, y)
    return step / max(1.0, float(np.sqrt((step**2).sum())))


def clients_of(mechanism: md.SphereQuantizer, clients: int, seed: int) -> Any:
    """What makes client i."""
    from flwr.client import NumPyClient

    class PrivateClient(NumPyClient):
        """Holds a few records; what leaves it is a message."""

        def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
            self.x, self.y = x, y

        def fit(
            self, parameters: list[np.ndarray], config: dict[str, Any]
        ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
            return (
                md.vectors.flower_update(mechanism, [clipped_gradient(parameters[0], self.x, self.y)]),
                1,
                {},
            )

    x, y, parts = split(clients, seed)
    return lambda i: PrivateClient(x[parts[i]], y[parts[i]])


def strategy_of(mechanism: md.SphereQuantizer, rate: float, each: int, clients: int, seed: int) -> Any:
    """Asks every client once, and takes a step along the mean gradient."""
    from flwr.common import ndarrays_to_parameters

    return md.vectors.flower_strategy(
        mechanism,
        each,
        rate=-rate,
        rng=seed + 1,
        fraction_evaluate=0.0,
        min_available_clients=clients,
        initial_parameters=ndarrays_to_parameters([np.zeros(SIZE)]),
    )


def loop(strategy: Any, make: Any, *, rounds: int, clients: int) -> Any:
    """The rounds, client after client in this process."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays

    class Everybody:
        def wait_for(self, count: int) -> None:
            pass

        def all(self) -> dict[int, int]:
            return {i: i for i in range(clients)}

    parameters = strategy.initial_parameters
    for turn in range(1, rounds + 1):
        results = []
        for i, ins in strategy.configure_fit(turn, parameters, Everybody()):
            arrays, examples, metrics = make(i).fit(parameters_to_ndarrays(ins.parameters), {})
            reply = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), examples, metrics)
            results.append((None, reply))
        parameters, _ = strategy.aggregate_fit(turn, results, [])
    return parameters


def simulation(strategy: Any, make: Any, *, rounds: int, clients: int) -> Any:
    """The rounds in Flower's simulation."""
    from flwr.client import ClientApp
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.simulation import run_simulation

    found: list[Any] = []
    aggregate = strategy.aggregate_fit

    def kept(*arguments: Any) -> Any:
        found.append(aggregate(*arguments))
        return found[-1]

    strategy.aggregate_fit = kept
    config = ServerConfig(num_rounds=rounds)
    run_simulation(
        server_app=ServerApp(server_fn=lambda context: ServerAppComponents(strategy=strategy, config=config)),
        client_app=ClientApp(
            client_fn=lambda context: make(int(context.node_config["partition-id"])).to_client()
        ),
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return found[-1][0]


def train(
    mechanism: md.SphereQuantizer,
    *,
    rounds: int,
    clients: int,
    rate: float,
    seed: int = 0,
    simulated: bool = False,
) -> float:
    """Run the rounds; return the accuracy on records that no client holds."""
    from flwr.common import parameters_to_ndarrays

    each = clients // rounds
    strategy, make = strategy_of(mechanism, rate, each, clients, seed), clients_of(mechanism, clients, seed)
    last = (simulation if simulated else loop)(strategy, make, rounds=rounds, clients=clients)
    if strategy.damaged or strategy.seen != each * rounds:
        raise RuntimeError(f"{strategy.seen} answers of {each * rounds}, {strategy.damaged} damaged")
    x, y, _ = split(clients, seed)
    return accuracy(parameters_to_ndarrays(last)[0], x[:297], y[:297])


def train_plainly(*, rounds: int, clients: int, rate: float, seed: int = 0) -> float:
    """The same without privacy and without Flower."""
    x, y, parts = split(clients, seed)
    weights, order = np.zeros(SIZE), np.random.default_rng(seed + 1).permutation(clients)
    for asked in order[: clients // rounds * rounds].reshape(rounds, -1):
        weights = weights - rate * np.mean(
            [clipped_gradient(weights, x[parts[i]], y[parts[i]]) for i in asked], axis=0
        )
    return accuracy(weights, x[:297], y[:297])


def main(arguments: list[str] | None = None) -> int:
    """Train with and without privacy, and print what a client sends."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    try:
        import flwr  # noqa: F401
        import sklearn  # noqa: F401
    except ImportError as error:
        print(f"skipped: this example needs {error.name} (pip install 'mechdesign[flower,learning]')")
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--bits", type=int, default=9)
    parser.add_argument("--clients", type=int, default=1200)
    parser.add_argument("--loop", action="store_true", help="one process, without Flower's simulation")
    options = parser.parse_args(arguments)
    clients = max(1, min(options.clients, 1500))
    rounds = max(1, min(options.rounds, clients))
    simulated = not options.loop and find_spec("ray") is not None
    if not simulated and not options.loop:
        print(
            "Flower's simulation needs ray (pip install 'flwr[simulation]'): clients run one after the other"
        )
    design = md.VectorQuantizer(SIZE, md.PureDP(options.epsilon), bits=options.bits, rotation="fast")
    mechanism = md.SphereQuantizer(SIZE, options.bits, md.PureDP(options.epsilon), rotation="fast")
    result = design.solve()
    print(
        f"{SIZE} numbers in {options.bits} bits at ε = {options.epsilon:g}: expected squared error {mechanism.error:.1f}, "
        f"at least {result.lower_bound:.1f} for any number of bits"
    )
    plain = train_plainly(rounds=rounds, clients=clients, rate=20.0)
    private = train(mechanism, rounds=rounds, clients=clients, rate=4.0, simulated=simulated)
    size = len(mechanism.encode(np.zeros(SIZE)))
    print(f"a client sends {size} bytes, header and seed included, instead of {8 * SIZE}")
    how = "in Flower's simulation" if simulated else "in one process"
    print(
        f"accuracy after {rounds} rounds of {clients // rounds} clients {how}: {private:.2f} private, {plain:.2f} not"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
