"""Hypothesis profiles: 200 examples normally, 2,000 when MECHDESIGN_NIGHTLY is set. One thread a worker for linear algebra."""

import os
import signal
import threading

from hypothesis import HealthCheck, settings

from mechdesign.evidence import digits

# Workers take all cores: threads of the matrices' own would wait for each other, and cost half of the processor's time.
for _library in ("OPENBLAS", "OMP"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# Prints fold at the width of the terminal: tests read them whole, and those of the width set COLUMNS, as xdist does for its workers.
os.environ.pop("COLUMNS", None)
digits.WIDTH = 10_000

# A shell that starts the tests in the background has them ignore interrupts, and so would the programs that they start.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": True}
settings.register_profile("normal", max_examples=200, **_COMMON)
settings.register_profile("nightly", max_examples=2000, **_COMMON)
settings.load_profile("nightly" if os.environ.get("MECHDESIGN_NIGHTLY") else "normal")
