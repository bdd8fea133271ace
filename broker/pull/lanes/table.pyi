from typing import final

from congreve.broker.pull.lanes.plan_table import LanePlanTable
from congreve.broker.pull.lanes.pull_plan import PullPlans

@final
class LanePullTable(LanePlanTable):
    def __init__(self, plans: PullPlans, files_max: int) -> None: ...
    def take_commits(self) -> list[tuple[str, str, int, int]]: ...
