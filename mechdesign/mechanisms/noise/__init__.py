"""Noise laws, as scipy.stats distributions, and the additive mechanism that deploys them."""
