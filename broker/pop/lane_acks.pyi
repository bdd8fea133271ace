from typing import final

from congreve.engine.pop.in_flight import InFlight

@final
class LaneAcks:
    def __init__(self, in_flight: InFlight) -> None: ...
    def take(self, frame: bytes) -> bytes | None: ...
