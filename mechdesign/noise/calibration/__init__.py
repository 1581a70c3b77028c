"""Calibration as a design: the least noise of a named family (or of any law's scale) that meets a privacy requirement.

``design`` says what is wanted, ``requirement`` how a law's privacy is measured against it, ``search`` finds scale and
shape, ``certificate`` evaluates the answer once more apart from the search, ``result`` is what comes back.
"""
