from .channel import Channel as Channel
from .design import ChannelDual as ChannelDual
from .design import ChannelProof as ChannelProof
from .design import MetricChannel as MetricChannel
from .responses import ClusteredResponse as ClusteredResponse
from .responses import HadamardResponse as HadamardResponse
from .responses import KaryResponse as KaryResponse
from .responses import planar_laplace as planar_laplace
