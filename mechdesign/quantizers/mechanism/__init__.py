"""What is deployed: quantizers as piecewise affine tables, their exact rational laws, and how both are sampled.

Nothing here knows a solver. Besides the optimum's and the selection family's laws: the biased extension, and vectors
coordinate by coordinate. Imports ``evidence`` and ``problem``.
"""
