from typing import final

from congreve.broker.pop.lanes.pop_plan import PopPlans

@final
class LanePopTable:
    def __init__(self, plans: PopPlans, files_max: int) -> None: ...
    def __len__(self) -> int: ...
