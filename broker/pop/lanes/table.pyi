from typing import final

from congreve.broker.pop.lanes.pop_plan import PopPlans
from congreve.broker.pull.lanes.plan_table import LanePlanTable

@final
class LanePopTable(LanePlanTable):
    def __init__(self, plans: PopPlans, files_max: int) -> None: ...
