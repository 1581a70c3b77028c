"""Noise laws as frozen `scipy.stats` distributions, each from the paper its class names.

``families`` lists those that can be calibrated; ``symmetric`` holds the continuous ones, ``staircase`` and ``discrete`` those
whose privacy loss has atoms only.
"""
