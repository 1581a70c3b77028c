"""Out of time, a design answers with no more error than the closed forms of its question."""

import numpy as np

import mechdesign as md

privacy = md.ApproximateDP(1, 1e-6)
skewed = np.exp(np.random.default_rng(1).normal(0, 0.5, 50))
gaussian = md.NoiseAllocation("gaussian", skewed, privacy).solve().value
for seconds in (3, 1e-3):
    mixed = md.NoiseAllocation("mixed", skewed, privacy).solve(time_limit=seconds)
    print(f"mixed in {seconds} s: {mixed.value:,.0f}, Gaussian alone: {gaussian:,.0f} ({mixed.status})")

wide = md.ApproximateDP(0.1, 0.01)
late = md.OptimalNoise(wide, loss="squared").solve(time_limit=1e-3)
usual = md.noise.Calibration("gaussian", wide, 1.0).solve()
print(f"OptimalNoise in 1e-3 s: {late.value:.6g}, Gaussian: {usual.value:.6g} ({late.status})")
channel = md.MetricChannel(md.MetricSpace.grid(8, 8), alpha=0.7).solve(time_limit=1e-3)
print(f"MetricChannel in 1e-3 s: {channel.value:.6g} by {channel.solver_report.solver} ({channel.status})")
