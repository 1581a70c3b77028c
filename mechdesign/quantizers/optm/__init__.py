"""OPTM, from *Privacy-Aware Randomized Quantization via Linear Programming*: the best of the selection family.

`design` says what is wanted. Up to four bins the paper's linear program (`program`) is solved for a grid of boxes, and around it
for a grid of bins (`search`, Algorithm 2); beyond, the bilinear problem is followed down (`descent`). Imports the mechanisms, the
proofs and the optimal quantizer of this wing.
"""
