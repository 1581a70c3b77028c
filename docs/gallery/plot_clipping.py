"""
How far should clients clip?
============================

The mean of n clients' reports is off by noise, which a wide clipping range makes larger, and by the bias of a narrow one. The more
clients, the less noise is left, and the wider the best range.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import mechdesign as md

found = {
    n: md.compare(
        md.LocalReport(bits=2, prior=stats.norm(), clients=n),
        md.PureDP(1.0),
        mechanisms=["optimal, searched outputs"],
    )
    for n in (1_000, 100_000, 10_000_000)
}
print(found[100_000].of_mean)

# %%
# Each mechanism's outputs are moved along with the range.
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
ends = np.geomspace(0.5, 8, 120)
for n, comparison in found.items():
    question, mechanism = comparison.question, comparison.best.mechanism
    curve = np.sqrt(question.mean.errors(mechanism, -ends, ends).squared(n))
    (line,) = axes.plot(ends, curve, label=f"{n:,} clients")
    high = mechanism.input_range[1]
    axes.plot(high, question.error(comparison.best) ** 0.5, "o", color=line.get_color())
axes.set(xscale="log", yscale="log", xlabel="clip at, standard deviations", ylabel="root mean squared error")
axes.legend()
plt.show()
