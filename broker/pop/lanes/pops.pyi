from typing import final

from congreve.broker.pop.lanes.pop_plan import PopPlans
from congreve.broker.pop.lanes.table import LanePopTable
from congreve.engine.pop.in_flight import InFlight
from congreve.engine.store import MessageStore

@final
class LanePops:
    turn: int
    def __init__(
        self,
        store: MessageStore,
        in_flight: InFlight,
        plans: PopPlans,
        broker_name: bytes,
        *,
        files_max: int,
    ) -> None: ...
    @property
    def table(self) -> LanePopTable: ...
    def take_frame(self, frame: bytes) -> bytes | None: ...
