from .channel import Channel as Channel
from .hadamard import HadamardResponse as HadamardResponse
from .optimal.certificate import ChannelCertificate as ChannelCertificate
from .optimal.design import MetricChannel as MetricChannel
from .optimal.result import ChannelResult as ChannelResult
from .planar import planar_laplace as planar_laplace
from .responses import ClusteredResponse as ClusteredResponse
from .responses import KaryResponse as KaryResponse
