"""Standing campaigns against the package: random designs, and damaged or doctored files."""

import sys
from pathlib import Path

# ``python -m tests.campaign`` finds the tests' own modules, as pytest does.
sys.path.insert(0, str(Path(__file__).parents[1]))
