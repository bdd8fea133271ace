"""What the windows answer."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from congreve.engine.pop.in_flight import PopWindow


class Answer(IntEnum):
    """What became of an acknowledgement or an extension."""

    DONE = 0
    REPEATED = 1
    """The message is settled already."""
    STALE = 2
    """The message is out, but with another pop time: the handle is an older one."""
    UNKNOWN = 3
    """No pop has taken the offset."""


class Due(NamedTuple):
    """A message whose invisible time is over (RocketMQ: PopCheckPoint).

    `attempts`: how often it was taken again in place. `ordered`: it belongs to an ordered pop, and
    is taken again in place; another one is copied to the retry topic.
    """

    window: PopWindow
    offset: int
    pop_ms: int
    invisible_ms: int
    attempts: int
    ordered: bool
