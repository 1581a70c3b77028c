from .coordinate_descent import PrivateCoordinateDescentClassifier as PrivateCoordinateDescentClassifier
from .coordinate_descent import PrivateCoordinateDescentRegressor as PrivateCoordinateDescentRegressor
from .least_squares import PrivateLinearRegression as PrivateLinearRegression
from .logistic import PrivateLogisticRegression as PrivateLogisticRegression
from .pca import PrivatePCA as PrivatePCA
from .plan import NoisePlan as NoisePlan
from .plan import PrivacyLeakWarning as PrivacyLeakWarning
from .plan import noise_plan as noise_plan
