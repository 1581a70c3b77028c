"""What every quantizer design shares: exact rows next to a solver's floats, certificate, slack table, result, OpenDP.

Imports ``mechanism``, ``evidence`` and ``problem``; the designs of this wing import it.
"""
