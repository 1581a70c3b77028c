"""Hypothesis profiles: 200 examples normally, 2,000 when MECHDESIGN_NIGHTLY is set."""

import os
import re

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": True}
settings.register_profile("normal", max_examples=200, **_COMMON)
settings.register_profile("nightly", max_examples=2000, **_COMMON)
settings.load_profile("nightly" if os.environ.get("MECHDESIGN_NIGHTLY") else "normal")


def pytest_collection_modifyitems(items: list) -> None:
    """Take memory addresses out of test names: parallel workers must collect the same ones."""
    for item in items:
        item._nodeid = re.sub(r" at 0x[0-9a-f]*", "", item._nodeid)
