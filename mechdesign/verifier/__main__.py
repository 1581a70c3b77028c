"""Run the verifier: ``python -m mechdesign.verifier result.json``, or ``python verify.pyz result.json``."""

import sys

from mechdesign.verifier.verify import main

sys.exit(main(sys.argv[1:]))
