"""Quantizers under metric and approximate local privacy: one growing linear program over rows at knots.

`notion` says which rows are compared, and whether anything is feasible; `program` declares the program over them, and the one
that bounds what any mechanism can reach (on the continuum over the means on cells); `design` asks, solves and proves. Vectors:
Chaudhuri et al. 2022, Lemma 6. Imports the mechanisms, the exact rows and the hat functions' costs of this wing, and lower
floors.
"""
