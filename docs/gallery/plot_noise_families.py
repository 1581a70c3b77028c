"""
Which noise for K numbers?
==========================

One person may move all K numbers by one each. How much variance does each family need for ε = 1 and δ = 1e-6, exactly
accounted? The generalised normal wins where Laplace and Gaussian meet.
"""

# %%
# Calibrate each family at each K.
import matplotlib.pyplot as plt

import mechdesign as md

privacy = md.ApproximateDP(1.0, 1e-6)
counts = [2, 4, 8, 16]
families = ["gaussian", "laplace", "logistic", "gennorm"]
variance = {
    family: [md.calibrate(family, privacy=privacy, sensitivity=1, dimension=k).value for k in counts]
    for family in families
}

# %%
# Relative to the Gaussian, so that the crossing shows.
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for family, marker in zip(families, "osd^"):
    ratio = [v / g for v, g in zip(variance[family], variance["gaussian"])]
    axes.plot(counts, ratio, marker=marker, label=family)
axes.set_ylim(0, 1.6)
axes.set_xlabel("numbers released, K")
axes.set_ylabel("variance relative to the Gaussian")
axes.legend()
plt.show()

# %%
# At K = 8:
for family in families:
    print(f"{family:10} {variance[family][counts.index(8)]:8.2f}")
