"""Federated learning with Flower: clients encode their updates privately in a few bits, the server decodes and adds up.

    python studies/examples/flower_digits.py [--rounds 30] [--epsilon 8] [--bits 9]

Softmax regression on scikit-learn's digits, spread over simulated clients that hold a few records each. In every round each client
takes one gradient of all its records, as one vector of 650 numbers clipped at length 1, and sends the code of a
rotated simplex: two bytes, ε for everything that the client has, per round. A client is asked once: 30 rounds of 40 clients are 1,200 of
them, so that ε in all is ε in a round.

The clients and the strategy are Flower's own (`flwr.client.NumPyClient`, `flwr.server.strategy.FedAvg`), driven here in one process; in
a deployment they are handed to a `ClientApp` and a `ServerApp` as they are.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import mechdesign as md

CLASSES, FEATURES, CLIENTS = 10, 64, 1200
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


def flower(mechanism: md.SphereQuantizer | None, rate: float) -> tuple[type, Any]:
    """A client that encodes, and a strategy that decodes; without a mechanism both send plain vectors."""
    from flwr.client import NumPyClient
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server.strategy import FedAvg

    class PrivateClient(NumPyClient):
        """Holds a few records; what leaves it is a message."""

        def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
            self.x, self.y = x, y

        def fit(
            self, parameters: list[np.ndarray], config: dict[str, Any]
        ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
            step = gradient(parameters[0], self.x, self.y)
            step /= max(1.0, float(np.sqrt((step**2).sum())))
            if mechanism is None:
                return [step], 1, {}
            message = mechanism.encode(step)
            return [np.frombuffer(message, dtype=np.uint8)], 1, {}

    class DecodingStrategy(FedAvg):
        """Adds up the estimates of the messages: an unbiased estimate of the mean gradient, and a step along it."""

        weights = np.zeros(SIZE)

        def aggregate_fit(
            self, server_round: int, results: list[Any], failures: list[Any]
        ) -> tuple[Any, dict[str, Any]]:
            parts = [parameters_to_ndarrays(result.parameters)[0] for _, result in results]
            if mechanism is None:
                mean = np.mean(parts, axis=0)
            else:
                total, count = mechanism.aggregate([part.tobytes() for part in parts])
                mean = total / count
            self.weights = self.weights - rate * mean
            return ndarrays_to_parameters([self.weights]), {}

    return PrivateClient, DecodingStrategy()


def train(
    mechanism: md.SphereQuantizer | None, *, rounds: int, each: int, rate: float, seed: int = 0
) -> float:
    """Run the rounds; return the accuracy on records that no client holds."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters

    x, y = data()
    order = np.random.default_rng(seed).permutation(len(x))
    test, held = order[:297], order[297:]
    kind, strategy = flower(mechanism, rate)
    clients = [kind(x[part], y[part]) for part in np.array_split(held, CLIENTS)]
    asked = np.random.default_rng(seed + 1).permutation(CLIENTS)
    for turn in range(rounds):
        results = []
        for i in asked[turn * each : (turn + 1) * each]:  # every client once
            arrays, examples, metrics = clients[i].fit([strategy.weights], {})
            reply = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), examples, metrics)
            results.append((None, reply))
        strategy.aggregate_fit(turn + 1, results, [])
    return accuracy(strategy.weights, x[test], y[test])


def main(arguments: list[str] | None = None) -> int:
    """Train with and without privacy, and print what a client sends."""
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
    options = parser.parse_args(arguments)
    rounds = max(1, min(options.rounds, CLIENTS))
    each = CLIENTS // rounds
    design = md.VectorQuantizer(SIZE, md.PureDP(options.epsilon), bits=options.bits, rotation="fast")
    mechanism = md.SphereQuantizer(SIZE, options.bits, md.PureDP(options.epsilon), rotation="fast")
    result = design.solve()
    print(
        f"{SIZE} numbers in {options.bits} bits at ε = {options.epsilon:g}: expected squared error {mechanism.error:.1f}, "
        f"at least {result.lower_bound:.1f} for any number of bits"
    )
    plain = train(None, rounds=rounds, each=each, rate=20.0)
    private = train(mechanism, rounds=rounds, each=each, rate=4.0)
    size = len(mechanism.encode(np.zeros(SIZE)))
    print(f"a client sends {size} bytes, header and seed included, instead of {8 * SIZE}")
    print(f"accuracy after {rounds} rounds of {each} clients: {private:.2f} private, {plain:.2f} not")
    return 0


if __name__ == "__main__":
    sys.exit(main())
