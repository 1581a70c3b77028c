"""OPTM, from *Privacy-Aware Randomized Quantization via Linear Programming*: the best of the selection family.

`design` says what is wanted and certifies what comes out. Up to four bins the paper's linear program (`model`, its
constraints in `products` and `theorem6`) is solved for a grid of boxes (`boxes`), and around it for a grid of bins
(`grid_search`, Algorithm 2); beyond, the bilinear problem (`blocks`) is followed down (`successive`). Imports the
mechanisms, the certificates and the optimal quantizer of this wing, and lower floors.
"""
