"""Long runs: declared grids, parallel work in order, resumable stores, progress.

A search declares its points (`Grid`), cuts them into chunks, and hands them to ``run_chunks``, which works in parallel by
joblib, appends what is finished to a ``Store``, and continues after a kill as if it had not been interrupted.

May import the evidence (a grid stands in result files), errors, plotting and typing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
