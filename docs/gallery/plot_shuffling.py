"""
What shuffling buys
===================

Privacy of one moved item among N shuffled reports: computed exactly from the reduction, against the published closed
form and against no shuffling at all.
"""

# %%
import matplotlib.pyplot as plt

import mechdesign as md

totals = [1_000, 3_000, 10_000, 30_000]
ways = {"composition": "no shuffling", "closed-form": "published closed form", "numerical": "computed"}
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for (way, label), style in zip(ways.items(), ["--", "-.", "-"]):
    loss = [md.amplification(1.0, moved=1.0, total=n, delta=1e-6, accounting=way).epsilon for n in totals]
    axes.loglog(totals, loss, style, marker="o", label=label)
axes.set_xlabel("reports shuffled, N")
axes.set_ylabel("ε at δ = 1e-6")
axes.legend()
plt.show()
