r"""Documents under a word embedding: the text example of the earth mover's distance.

The embedding is made here: latent semantic analysis (term frequencies, truncated singular values) of the descriptions of data sets that
scikit-learn ships. Items are words, distances are those of their unit vectors, and a user is a paragraph of a description: the
words it holds. EMD-privacy protects what a paragraph says as far as its words are replaced by related ones; user-level privacy
protects any replacement of the paragraph.
"""

from __future__ import annotations

import re
from importlib import resources

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer

import mechdesign as md
from mechdesign.shell.studykit import Report

from .linear_baselines import body, body_noise, linear_table

EPSILON, DELTA, DIMENSION = 1.0, 1e-6, 12
TOPICS = ("cancer", "learning", "images")
LEAST = 5
"""Words of a paragraph, at least."""


def paragraphs() -> list[list[str]]:
    """The paragraphs of scikit-learn's data set descriptions, as words."""
    found = []
    for file in sorted((resources.files("sklearn.datasets") / "descr").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".rst"):
            for part in re.split(r"\n\s*\n", file.read_text(encoding="utf-8")):
                words = [w for w in re.findall(r"[a-z]{3,}", part.lower()) if w not in ENGLISH_STOP_WORDS]
                if len(words) >= LEAST:
                    found.append(words)
    return found


def embedding(texts: list[list[str]]) -> tuple[list[str], np.ndarray]:
    """Words that occur often enough, and their unit vectors by latent semantic analysis."""
    counts = TfidfVectorizer(analyzer=lambda words: words, min_df=3)
    table = counts.fit_transform(texts)
    vectors = TruncatedSVD(DIMENSION, algorithm="arpack", random_state=0).fit(table).components_.T
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(DIMENSION)])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kept = np.sort(np.unique(np.round(vectors, 3), axis=0, return_index=True)[1])  # always together: one item
    return np.array(counts.get_feature_names_out())[kept].tolist(), vectors[kept]


def run(report: Report) -> None:
    """Write the study."""
    texts = paragraphs()
    words, vectors = embedding(texts)
    index = {word: i for i, word in enumerate(words)}
    items = [[index[w] for w in text if w in index] for text in texts]
    items = [found for found in items if len(found) >= LEAST]
    space = md.MetricSpace.euclidean(vectors)
    data = np.array([space.histogram(found) for found in items])
    users, diameter = len(data), space.diameter
    near = np.sort(space.distances, axis=1)[:, 1]
    alpha = md.user_level.alpha_from_semantics(EPSILON, fraction=[1.0], distance=[float(np.median(near))])
    report.text(
        f"{users} paragraphs of {len(words)} different words, {np.mean([len(i) for i in items]):.0f} words each on average; diameter {diameter:.2f}, the nearest "
        f"other word of a word is {np.median(near):.2f} away. α = {alpha:.2f} protects *every word of a paragraph replaced by a closest one* with ε = {EPSILON:g}. "
        f"Two paragraphs are {np.mean(md.emd(data[:-1], data[1:], space)):.2f} apart on average, for which that is ε = {alpha * np.mean(md.emd(data[:-1], data[1:], space)):.1f}."
    )
    topics = list(TOPICS)
    neighbours = [
        (word, ", ".join(words[i] for i in np.argsort(space.distances_from(index[word]))[1:5]))
        for word in topics
    ]
    report.table(
        "words", pd.DataFrame(neighbours, columns=["query word", "closest words"]), caption="The embedding"
    )
    query = md.user_level.LinearQuery.similarity(space, vectors[[index[t] for t in topics]])
    table = linear_table(query, alpha=alpha, epsilon=EPSILON, delta=DELTA, users=users)
    report.table(
        "similarity",
        table,
        caption=f"Average similarity of paragraphs to {', '.join(topics)}: root mean square ℓ₂ error",
        rtol=1e-4,
    )
    truth, hull = query(data.mean(axis=0)), body(query, metric=True)
    noise = body_noise(hull, 20000, report.rng("body")) / (alpha * users)
    stated = table.loc[
        table["mechanism"].str.endswith("[new]") & (table["model"] == "central"), "rms error"
    ].iloc[0]
    best = table.sort_values("rms error").groupby(["model", "privacy"], sort=False).head(1)
    report.text(
        f"True similarities {', '.join(f'{t} {v:.3f}' for t, v in zip(topics, truth))}. Best in each setting: "
        + "; ".join(f"{r.model}, {r.privacy}: {r.mechanism} {r._4:.4f}" for r in best.itertuples())
        + f". Drawn 20,000 times the body's noise has error {np.sqrt((noise**2).sum(axis=1).mean()):.5f} where the formula says {stated:.5f}. "
        "The body of the slopes is smaller than the ball that PrivEMDLinear puts around it, and its noise is less. α and ε protect different things and "
        "are compared as the paper does, by the change that each was chosen for."
    )
    report.record(users=users, words=len(words), alpha=alpha)
