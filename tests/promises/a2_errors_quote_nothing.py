"""No message of anything that receives data quotes them."""

from collections import Counter

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.learning import PrivateLinearRegression

SECRET = "SECRET-8231"
plan = md.Plan({"visits": md.Count(), "ages": md.Histogram(2)}, md.PureDP(1.0)).solve()
model = PrivateLinearRegression(privacy=md.ApproximateDP(1.0, 1e-6), bounds=(-1, 1), target_bounds=(-1, 1))
sphere = md.SphereQuantizer(4, 2, md.PureDP(1.0))
report = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0)


def tell(words, call, *data):
    try:
        print(f"{words}: taken, {call(*data)}")
    except Exception as error:
        chain = f"{error} {error.__cause__}" + ("" if error.__suppress_context__ else f" {error.__context__}")
        print(f"{words}: {'QUOTED' if SECRET in chain or '8231' in chain else 'refused'} ({error})")


good = {"visits": 7, "ages": [1, 2]}
tell("a frame with a column a task", plan.release, pd.DataFrame({"visits": [7, None], "ages": [1, 2]}))
tell("a frame with another column", plan.release, pd.DataFrame({SECRET: [1], "visits": [8231]}))
tell("a series", plan.release, pd.Series([8231.4375, 2.0], index=[SECRET, "visits"]))
tell("a list", plan.release, [SECRET, 8231.4375])
tell("a tuple", plan.release, (8231.4375, SECRET))
tell("a counter of records", plan.release, Counter([SECRET, "visits"]))
tell("a text among the answers", plan.release, good | {"ages": [1, SECRET]})
tell("a text in a fit", model.fit, [[SECRET], [0.5]], [0.0, 1.0])
tell("one axis too few", model.fit, np.full(5, 8231.4375), np.zeros(5))
tell("encode", sphere.encode, np.full(8231, 0.5))
tell("decode", sphere.decode, SECRET)
tell("release", report.release, {SECRET: 8231.4375})
