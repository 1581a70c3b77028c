"""Run the verifier: ``python -m mechdesign.verifier result.json``, or ``python verify.pyz result.json``."""

import sys

try:
    from mechdesign.verifier.verify import main

    status = main(sys.argv[1:])
except KeyboardInterrupt:
    print("error: interrupted", file=sys.stderr)
    status = 130
sys.exit(status)
