"""Noise laws as frozen `scipy.stats` distributions, each from the paper its module names.

``families`` lists those that can be calibrated; ``symmetric`` is what they share.
"""
