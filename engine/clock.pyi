from typing_extensions import disjoint_base

@disjoint_base
class Clock:
    """The system's wall clock."""

    def now(self) -> int:
        """Milliseconds since 1970 (RocketMQ: SystemClock.now)."""

@disjoint_base
class ManualClock(Clock):
    """A clock that stands still until it is told to move."""

    def __init__(self, now_ms: int = 0) -> None: ...
    def set(self, now_ms: int) -> None: ...
    def advance(self, milliseconds: int) -> None: ...
