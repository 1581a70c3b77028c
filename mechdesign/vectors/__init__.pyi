from .cap import PrivUnit as PrivUnit
from .certificate import VectorCertificate as VectorCertificate
from .design import VectorQuantizer as VectorQuantizer
from .result import VectorQuantizerResult as VectorQuantizerResult
from .sampled import SampledCoordinates as SampledCoordinates
from .sphere import SphereQuantizer as SphereQuantizer
