"""Studies of additive noise: allocations, flipped Huber, the optimum."""
