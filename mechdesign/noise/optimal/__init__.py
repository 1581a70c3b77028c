"""The least noise any mechanism can add, with the proof: one number, or several with independent noise of one law.

`question` says what is asked, `design` how it is answered: the staircase and its dual (`staircase`), then one linear
program on ever finer lattices (`lattice`), whose laws are repaired in exact arithmetic and whose
multipliers prove a lower bound with exact costs (`lattice_bound`). Several numbers (`several`) have the noise of a named family, or of one
coordinate on each (`cell_product`), and bounds from fewer of them.
After Geng and Viswanath (2016) and Selvi, Liu and Wiesemann (2025); the lattice bounds are new.
"""
