"""Which operations of a FaultBackend fail, and how."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one group of writes.

    `error`: an errno instead of a sync. `delay_s`: a slow disk. `lost`: the disk reports success
    and keeps nothing, as a cache without a battery does.
    """

    error: int = 0
    delay_s: float = 0.0
    lost: bool = False


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults by the number of the group, and errnos by the number of the created segment.

    Both count from 0. `record` keeps every group's bytes, to be replayed into crash images.
    """

    groups: dict[int, Fault] = field(default_factory=dict)
    creates: dict[int, int] = field(default_factory=dict)
    record: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Bytes that were written between two barriers; `start` is their physical offset."""

    start: int
    data: bytes
