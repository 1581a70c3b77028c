"""The best independent noise for K coordinates under one budget, composed exactly.

The law is constant on cells; `composed` says δ of K coordinates and its derivatives, `newton` descends, `search` starts
from the named families and from the optimum of one coordinate and brings what is found inside the budget. `loss` holds the
privacy loss above all shifts, `mechanism` what is deployed, `certificate` and `result` what is proved of it. New here.
Imports what its parent does, and from its parent the exact costs.
"""
