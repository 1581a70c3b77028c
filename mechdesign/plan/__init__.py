"""One privacy budget for everything that is released: named tasks over the same people, and the plan of least error.

``tasks`` says what is asked, ``menu`` which noise a task may get and what it consumes, ``search`` chooses noise and scales, ``design`` is the
plan, ``mechanism`` the release and its proof.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
