"""Quantizers under metric and approximate local privacy: one linear program over rows at knots.

`notion` says which rows are compared; `design` declares and solves the program, `lower_bound` bounds what any mechanism
can reach, `result` holds the certificate. Vectors: Chaudhuri et al. 2022, Lemma 6. Imports the mechanisms, the exact rows
and the hat functions' costs of this wing, and lower floors.
"""
