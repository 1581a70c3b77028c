from .generalized_linear import PrivateGeneralizedLinearRegression as PrivateGeneralizedLinearRegression
from .generalized_linear import PrivateLogisticRegression as PrivateLogisticRegression
from .least_squares import PrivateLinearRegression as PrivateLinearRegression
from .pca import PrivatePCA as PrivatePCA
from .plan import NoisePlan as NoisePlan
from .plan import PrivacyLeakWarning as PrivacyLeakWarning
from .plan import noise_plan as noise_plan
