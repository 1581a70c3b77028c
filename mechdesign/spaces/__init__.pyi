from .space import MetricSpace as MetricSpace
from .space import emd as emd
from .space import emd_multisets as emd_multisets
