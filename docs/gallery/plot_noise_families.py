"""
Which noise for K numbers?
==========================

One person may move all K numbers by one each. How much variance does each kind of noise need for ε = 1 and δ = 1e-6, exactly
accounted? Noise that is drawn for all K together is far below what is drawn for each alone: of the cube up to K = 40, of the
ball from there on.
"""

# %%
# Calibrate each family at each K; ``KNorm`` takes the best of the norms.
import matplotlib.pyplot as plt

import mechdesign as md

privacy = md.ApproximateDP(1.0, 1e-6)
counts = [2, 4, 8, 16, 32, 64]
families = ["gaussian", "laplace", "gennorm"]
variance = {
    family: [md.calibrate(family, privacy=privacy, sensitivity=1, dimension=k).value for k in counts]
    for family in families
}
variance["drawn together"] = [md.noise.KNorm(k, privacy, 1.0).solve().value for k in counts]

# %%
# Relative to the Gaussian.
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for family, marker in zip(variance, "osd^"):
    ratio = [v / g for v, g in zip(variance[family], variance["gaussian"])]
    axes.plot(counts, ratio, marker=marker, label=family)
axes.set_xscale("log", base=2)
axes.set_ylim(0, 1.6)
axes.set_xlabel("numbers released, K")
axes.set_ylabel("variance relative to the Gaussian")
axes.legend()
plt.show()

# %%
# At K = 8:
for family, values in variance.items():
    print(f"{family:15} {values[counts.index(8)]:8.2f}")
