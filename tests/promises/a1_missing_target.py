"""A target that is missing, or becomes no number by conversion, is refused before anything depends on it."""

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.learning import PrivateLinearRegression, PrivateLogisticRegression, PrivatePCA

DP = md.ApproximateDP(0.5, 1e-6)
x = np.random.default_rng(0).uniform(-1, 1, (500, 1))
linear = PrivateLinearRegression(privacy=DP, bounds=(-1, 1), target_bounds=(-1, 1))
logistic = PrivateLogisticRegression(privacy=DP, bounds=(-1, 1), classes=["n", "y"])
noise = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0)


def tell(words, call, *data):
    try:
        call(*data)
        print(f"{words}: taken")
    except md.DataError as error:
        print(f"{words}: refused ({error})")


def target(bad):
    y = x[:, 0].astype(object)
    y[7] = bad
    return y


for bad in (0.25, None, np.inf, pd.NA, "0.5", 1j, np.datetime64("2020-01-01")):
    tell(f"one target {bad!r}", linear.fit, x, target(bad))
tell("one target None in a list", linear.fit, x, [*target(None)])
tell("masked target", linear.fit, x, np.ma.array(x[:, 0], mask=np.arange(500) == 7))
labels = np.where(x[:, 0] > 0, "y", "n").astype(object)
tell("labels of the classes", logistic.fit, x, labels)
tell('"Y" for "y"', logistic.fit, x, np.where(labels == "y", "Y", "n"))
tell("a label None", logistic.fit, x, np.where(np.arange(500) == 7, None, labels))
tell("components of texts", PrivatePCA(privacy=DP, bounds=1.0).fit, [["1.5"], ["2"]])
tell("a release of a masked number in a list", noise.release, [1.0, np.ma.masked])
tell("a release of dates", noise.release, np.array(["2020-01-01"], dtype="M8[D]"))
