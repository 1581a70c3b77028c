"""
Published quantizers against the optimum
========================================

Mean absolute error of RQM, OPTM and the proved optimum at every input, four outputs, ε = 1, inputs uniform on
[−1, 1].
"""

# %%
# Each is certified: none of them is over its budget by even the last digit.
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import mechdesign as md

prior, privacy = stats.uniform(-1, 2), md.PureDP(1.0)
bins = [-3.0, -0.5, 0.5, 3.0]
results = {
    "RQM": md.RQM(4, privacy, prior).solve(),
    "OPTM": md.OPTM(bins, privacy, prior).solve("highs"),
    "optimum, OPTM's outputs": md.OptimalQuantizer(bins, privacy, prior).solve(),
}
for name, result in results.items():
    print(f"{name:24} {result.value:.4f}  outputs {np.round(result.mechanism.bins, 2)}")

# %%
x = np.linspace(-1, 1, 201)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, result), style in zip(results.items(), ["--", "-.", "-"]):
    axes.plot(x, result.mechanism.loss_at(x, "absolute"), style, label=name)
axes.set_xlabel("input")
axes.set_ylabel("mean absolute error")
axes.legend()
plt.show()

# %%
# The optimum's output probabilities are affine between its knots.
results["optimum, OPTM's outputs"].mechanism.plot()
plt.show()
