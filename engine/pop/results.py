"""What the windows answer."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

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
    """Messages of one window whose invisible time is over (RocketMQ: PopCheckPoint).

    `rows`, int64 of shape (n, 5): offset, pop time and invisible time in ms, attempts in place, and
    1 for a message of an ordered pop, which is taken again in place. Another one is copied to the
    retry topic.
    """

    window: PopWindow
    rows: NDArray[int64]
