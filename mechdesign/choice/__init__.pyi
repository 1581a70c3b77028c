from .design import CandidateGrid as CandidateGrid
from .design import PrivateChoice as PrivateChoice
from .design import PrivateQuantile as PrivateQuantile
from .design import QuantileRule as QuantileRule
from .rule import ChoiceRule as ChoiceRule
