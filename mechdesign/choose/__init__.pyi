from .accuracies import Accuracy as Accuracy
from .accuracies import accuracy as accuracy
from .accuracies import least_epsilon as least_epsilon
from .comparing import compare as compare
from .comparison import Comparison as Comparison
from .questions import LocalReport as LocalReport
from .questions import MetricReport as MetricReport
from .questions import NumericQuery as NumericQuery
