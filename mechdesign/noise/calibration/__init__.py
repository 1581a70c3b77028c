"""Calibration as a design: the least noise of a named family (or of any law's scale) that meets a privacy requirement.

``design`` says what is wanted, proves what is found and prints it, ``search`` finds scale and shape, ``evaluation`` encloses what
a law consumes and bounds what every law costs.
"""
