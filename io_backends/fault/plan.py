"""The plan of a FaultBackend: which operations fail, and how."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one group of writes.

    `error`: an errno instead of a sync. `delay_s`: a delay in seconds. `lost`: the disk reports
    success but stores nothing, like a cache without a battery.
    """

    error: int = 0
    delay_s: float = 0.0
    lost: bool = False


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults by the number of the group, and errnos by the number of the created segment.

    Both count from 0. `record` keeps the bytes of every group, to replay them into crash images.
    """

    groups: dict[int, Fault] = field(default_factory=dict)
    creates: dict[int, int] = field(default_factory=dict)
    record: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Bytes that were written between two barriers; `start` is their physical offset."""

    start: int
    data: bytes
