"""The provably optimal quantizer: the least loss of any ε-LDP mechanism with given outputs, on the continuum of inputs.

Read in this order: `floors` (the closed form of the best mechanism for given floors), `expected_loss` (its loss and
derivatives), `lower_bound` (what is proved), `newton` and `cutting_planes` with `worst_case` (the methods), `methods` and
`mse_cap` (which are tried), `bin_search` (where to put the outputs), `design` (the question) and `result` (the answer).
Ours, beside the paper *Privacy-Aware Randomized Quantization via Linear Programming*: it says how far any mechanism of that
family is from the best. Imports `quantizers.common`, `quantizers.mechanism`, and the floors below.
"""
