"""
The laws of noise
=================

Six laws that keep ε = 1 and δ = 1e-3 for one number of sensitivity 1: their densities, and how often they are far off.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import mechdesign as md

privacy = md.ApproximateDP(1.0, 1e-3)
names = ["gaussian", "laplace", "logistic", "flipped_huber", "truncated_laplace", "staircase"]
results = {name: md.calibrate(name, privacy=privacy, sensitivity=1) for name in names}
for name, result in results.items():
    print(
        f"{name:18} standard deviation {result.mechanism.standard_deviation:.3f}, mean error {result.mechanism.absolute_error:.3f}"
    )

# %%
t = np.linspace(0, 8, 801)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for (name, result), style in zip(results.items(), ["-", "--", "-.", ":", "-", "--"]):
    left.plot(t, result.mechanism.law.pdf(t), style, label=name)
    tail = 2 * result.mechanism.law.sf(t)
    right.semilogy(t[tail > 1e-5], tail[tail > 1e-5], style)
left.set_xlabel("noise")
left.set_ylabel("density")
left.legend()
right.set_xlabel("t")
right.set_ylabel("probability of an error beyond t")
plt.show()
