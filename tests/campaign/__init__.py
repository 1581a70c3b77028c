"""Standing campaigns against the package: random designs, and damaged or doctored files."""
