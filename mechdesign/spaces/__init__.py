"""Finite metric spaces, and the earth mover's distance between histograms on them.

`MetricSpace` holds points with distances in the user's own unit and keeps the structure of lines, grids and
clusters; `emd` is the distance of user-level metric privacy (Imola, Roy Chowdhury and Chaudhuri 2024), in closed form
where the structure allows. Imports `problem`, `evidence` and `errors` only; channels and user_level build on it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
