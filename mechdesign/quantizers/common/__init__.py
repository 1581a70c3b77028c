"""What every quantizer design shares: question and page, proofs, lower bounds, priors between bounds.

Imports ``mechanism``, ``evidence`` and ``problem``; the designs of this wing import it.
"""
