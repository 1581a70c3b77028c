from .earth_mover import emd as emd
from .space import MetricSpace as MetricSpace
