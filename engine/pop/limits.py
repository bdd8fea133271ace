"""How many messages may be out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PopLimits:
    """Messages that may be out at the same time: in the whole store, and in one window."""

    store: int = 20_000_000
    window: int = 1_000_000
