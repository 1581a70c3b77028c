from .design import Plan as Plan
from .design import PlanBound as PlanBound
from .design import PlanProof as PlanProof
from .mechanism import PlannedRelease as PlannedRelease
from .tasks import Count as Count
from .tasks import Histogram as Histogram
from .tasks import Mean as Mean
from .tasks import Sum as Sum
