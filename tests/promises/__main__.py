"""Each case of a fault that was once reported: what is refused, and whether all is right.

python -m tests.promises [WORD ...]        # all, or those whose name contains a word: A1, B13, …
"""

import contextlib
import sys
import time
import traceback
from tempfile import TemporaryDirectory

import tests.campaign  # noqa: F401  finds the tests' own modules, as pytest does
from tests.faults.test_every_fault import CASES

wrong = 0
for name, case in CASES.items():
    if not sys.argv[1:] or any(word in name for word in sys.argv[1:]):
        print(f"== {name}", flush=True)
        begun = time.process_time()
        with TemporaryDirectory() as folder, contextlib.chdir(folder):
            try:
                case()
                print(f"right, {time.process_time() - begun:.1f} s")
            except BaseException:
                wrong += 1
                print("WRONG:", traceback.format_exc(limit=-1))
print(f"{wrong or 'none'} wrong")
sys.exit(bool(wrong))
