"""What is published for vectors: SQKR, I-MVU, the Poisson binomial mechanism, Skellam and distributed discrete Gaussian noise.

One file for each paper, each calibrated to a budget between any two inputs of a client, with its error before any run; to
compare with. All draw in floating-point numbers, for simulation; the discrete ones give the integers whose modular sum a secure
aggregation reveals.
"""
