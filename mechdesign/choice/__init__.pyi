from .optimum import PrivateChoice as PrivateChoice
from .quantile import CandidateGrid as CandidateGrid
from .quantile import PrivateQuantile as PrivateQuantile
from .quantile import QuantileRule as QuantileRule
from .rule import ChoiceRule as ChoiceRule
