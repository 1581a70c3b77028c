"""The provably optimal quantizer: the least loss of any ε-LDP mechanism with given outputs, on the continuum of inputs.

Read in this order: `floors` (the closed form of the best mechanism for given floors, its loss and derivatives), `solution`
(what is proved of them, and the rational law), `newton` and `cutting_planes` (the methods), `methods` (which are tried, and a cap on the squared error),
`bin_search` (where to put the outputs) and `design` (the question).
Not in the paper *Privacy-Aware Randomized Quantization via Linear Programming*: it says how far any mechanism of that family is
from the best. Imports `quantizers.common`, `quantizers.mechanism`, and the floors below.
"""
