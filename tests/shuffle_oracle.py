"""Exact divergences of small releases by enumeration: the oracle of the user-level tests (no test in here)."""

import itertools

import numpy as np

import mechdesign as md


def random_space(rng, n):
    """A random metric: Euclidean points, or a random matrix closed by shortest paths, of random diameter."""
    if rng.random() < 0.5:
        space = md.MetricSpace.euclidean(rng.random((n, 2)))
    else:
        d = rng.random((n, n)) + 0.05
        d = np.minimum(d, d.T)
        np.fill_diagonal(d, 0)
        for z in range(n):
            d = np.minimum(d, d[:, z, None] + d[z, None, :])
        space = md.MetricSpace.from_matrix(d)
    return space.scaled(float(rng.choice([1.0, 0.3, 4.0])) / space.diameter)


def random_channel(rng, space, outputs=None):
    """A random channel that depends on the item: near uniform, spread out, staircase-like or an exponential mechanism."""
    n = space.size
    k = outputs or int(rng.integers(2, 5))
    kind = rng.integers(4)
    if kind == 0:
        matrix = 1 + rng.random() * rng.random((n, k))
    elif kind == 1:
        matrix = rng.dirichlet(np.ones(k), n) + 0.02
    elif kind == 2:
        matrix = np.where(rng.random((n, k)) < 0.4, np.exp(3 * rng.random()), 1.0)
    else:
        return md.Channel.exponential(space, 3 * rng.random() + 0.1)
    channel = md.Channel(matrix / matrix.sum(axis=1, keepdims=True), space)
    return channel if channel.alpha > 0 else random_channel(rng, space, outputs)


def multisets(points, size):
    """All multisets of `size` of 0..points−1, shape (count, size)."""
    return np.array(list(itertools.combinations_with_replacement(range(points), size)))


def shuffled_laws(matrix, inputs):
    """Law of the shuffled reports of each row of `inputs`, shape (rows, multisets of reports)."""
    k, size = matrix.shape[1], inputs.shape[1]
    sequences = np.array(list(itertools.product(range(k), repeat=size)))
    order = {tuple(row): i for i, row in enumerate(multisets(k, size).tolist())}
    label = np.array([order[tuple(sorted(row))] for row in sequences.tolist()])
    laws = np.empty((len(inputs), len(order)))
    for i, items in enumerate(inputs):
        probability = matrix[items[None, :], sequences].prod(axis=1)
        laws[i] = np.bincount(label, weights=probability, minlength=len(order))
    return laws


def divergence(p, q, epsilon):
    """Hockey-stick divergence Σ [p − e^ε q]₊ over the last axis."""
    return np.maximum(p - np.exp(epsilon)[..., None] * q, 0).sum(axis=-1)
