"""
A private map
=============

The reports of least mean distance on a grid of 25 places, α = 0.7 for each step, with more people in the centre.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import mechdesign as md

town = md.MetricSpace.grid(5, 5)
crowd = np.exp(-0.5 * ((town.points - town.points.mean(axis=0)) ** 2).sum(axis=1))
prior = crowd / crowd.sum()
result = md.MetricChannel(town, alpha=0.7, prior=prior).solve()
print(
    f"mean distance {result.value:.4f}, lower bound of {result.mechanism_class} {result.lower_bound:.4f} ({result.bound_how})"
)

# %%
# Where people are, and what three of them report.
figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
axes[0].imshow(prior.reshape(5, 5), cmap="Blues")
axes[0].set_title("people")
for ax, place in zip(axes[1:], (0, 7, 12)):
    ax.imshow(result.mechanism.matrix[place].reshape(5, 5), cmap="Oranges", vmin=0)
    ax.plot(place % 5, place // 5, "k+", markersize=12)
    ax.set_title(f"reports from {place}")
for ax in axes:
    ax.set_xticks([])
    ax.set_yticks([])
plt.show()
