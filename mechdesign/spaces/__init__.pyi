from .earth_mover import emd as emd
from .earth_mover import emd_multisets as emd_multisets
from .space import MetricSpace as MetricSpace
