"""Gaussian noise with the covariance that a finite sensitivity set deserves.

``fixed_point`` solves for the covariance with two proved bounds, ``design`` holds the question, its semidefinite model and its
proof, ``counts`` the question that symmetry solves, ``changes`` what one person changes, listed. ``noise`` is the law,
held as a whitening matrix, so that what it consumes of the budget is a sum of squares of exact numbers.
"""
