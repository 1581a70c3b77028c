from .generalized_linear import PrivateGeneralizedLinearRegression as PrivateGeneralizedLinearRegression
from .generalized_linear import PrivateLogisticRegression as PrivateLogisticRegression
from .plan import NoisePlan as NoisePlan
from .plan import PrivacyLeakWarning as PrivacyLeakWarning
from .plan import noise_plan as noise_plan
from .second_moments import PrivateLinearRegression as PrivateLinearRegression
from .second_moments import PrivatePCA as PrivatePCA
