from typing import final

from congreve.base.clock import Clock
from congreve.engine.pop.in_flight import InFlight

def pop_time_of_change(pop_ms: int, now_ms: int) -> int: ...

@final
class LaneAcks:
    def __init__(self, in_flight: InFlight, clock: Clock) -> None: ...
    def take(self, frame: bytes) -> bytes | None: ...
