"""
What does adding ε buy?
=======================

The least error that any quantizer with four outputs can reach, at each ε, every point proved.
"""

# %%
import matplotlib.pyplot as plt
from scipy import stats

import mechdesign as md

design = md.OptimalQuantizer(bins=[-3.0, -0.5, 0.5, 3.0], privacy=md.PureDP(1.0), prior=stats.uniform(-1, 2))
frontier = md.sweep(design, epsilon=[0.75, 1, 1.5, 2, 3, 4, 5])
print(frontier.table[["epsilon", "value", "lower_bound"]].round(5).to_string(index=False))

# %%
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(frontier.table["epsilon"], frontier.table["value"], marker="o")
axes.set_xlabel("ε")
axes.set_ylabel("mean absolute error")
axes.set_ylim(0)
plt.show()
