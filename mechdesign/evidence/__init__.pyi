from .proofs import Certificate as Certificate
from .results import Result as Result
from .results import SolveReport as SolveReport
from .serialize import register_law as register_law
from .serialize import register_loss as register_loss
from .serialize import result_schema as result_schema
from .serialize import serializable as serializable
from .vipr import NoProgramError as NoProgramError
