"""
Twenty running totals
=====================

One person adds one to a single step, and with it to every total from there on. A Gaussian with the right correlations
needs a fraction of the noise that independent noise needs.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import mechdesign as md

privacy = md.ApproximateDP(1.0, 1e-6)
changes = np.triu(np.ones((20, 20)))  # row t: what a person at step t adds to the totals
correlated = md.CorrelatedGaussian(changes=changes, privacy=privacy).solve()
independent = md.NoiseAllocation(noise="gaussian", sensitivities=np.ones(20), privacy=privacy).solve()
print(f"independent {independent.value:.0f}, correlated {correlated.value:.0f} in total")
print(
    f"no {correlated.mechanism_class.noun} costs less than {correlated.lower_bound:.4f} ({correlated.bound_how})"
)

# %%
# The covariance: late totals share the noise of early ones.
covariance = correlated.mechanism.covariance
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
shown = left.imshow(covariance, cmap="viridis")
left.set_title("covariance")
figure.colorbar(shown, ax=left)
right.plot(np.sqrt(np.diag(covariance)), marker="o", label="correlated")
right.plot(independent.mechanism.scales, "--", label="independent")
right.set_ylim(0)
right.set_xlabel("total")
right.set_ylabel("standard deviation")
right.legend()
plt.show()
