"""Gaussian noise with the covariance that a finite sensitivity set deserves.

``span`` finds, exactly, the subspace in which neighbours differ; ``fixed_point`` solves for the covariance there with
two proved bounds; ``design`` holds the question and its semidefinite model; ``certificate`` and ``result`` come back.
The law is held as a whitening matrix, so that what it spends of the budget is a sum of squares of exact numbers.
"""
