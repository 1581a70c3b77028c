"""The matrix mechanism of least Gaussian noise: linear queries on counts, answered from one set of correlated noises.

``solving`` finds the strategy with two proved bounds and holds the factorizations of the literature, ``strategy`` is the law that
is released.
"""
