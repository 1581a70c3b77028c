"""What is deployed: quantizers as piecewise affine tables, their exact rational laws, and how both are sampled.

Nothing here knows a solver. Besides the optimum's and the selection family's laws: the biased extension, vectors coordinate by
coordinate, and the continuous mechanisms of Wang et al. (2019) to compare with. Imports ``evidence`` and ``problem``.
"""
