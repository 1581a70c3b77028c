"""Quantizers under metric and approximate local privacy: one linear program over rows at knots.

`notion` says which rows are compared; `program` declares the program over them, and the one that bounds what any mechanism
can reach (on the continuum over `cells`); `known` says what is known without them, `stages` in which order they are solved;
`design` asks, `certificate` proves, `result` shows. Vectors: Chaudhuri et al. 2022, Lemma 6. Imports the mechanisms, the exact
rows and the hat functions' costs of this wing, and lower floors.
"""
