"""OPTM, from *Privacy-Aware Randomized Quantization via Linear Programming*: the best of the selection family.

`design` says what is wanted, `selection` states the paper's unknown, theorems and Lemma 1, `problem` solves, repairs and proves what is declared
with them. Up to four bins the linear program is solved for a grid of boxes (`boxes`), and around it for a grid of bins (`search`,
Algorithm 2); beyond, the bilinear problem is followed down (`descent`). Imports the mechanisms, the proofs and the optimal quantizer of this wing.
"""
