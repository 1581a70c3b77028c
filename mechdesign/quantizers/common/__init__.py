"""What every quantizer design shares: question and page, proofs, exact rows next to a solver's floats, slack table.

Imports ``mechanism``, ``evidence`` and ``problem``; the designs of this wing import it.
"""
