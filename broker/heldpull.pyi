from collections.abc import Callable
from typing import final

from congreve.broker.pulltickets import PullTicket, PullTickets
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.remoting.connection import Connection

@final
class HeldPull:
    """One pull that waits (RocketMQ: PullRequest): its request as it came, and its checks."""

    def __init__(
        self,
        connection: Connection,
        frame: bytes,
        ticket: PullTicket,
        *,
        offset: int,
        max_count: int,
        serialize_type: int,
        opaque: int,
    ) -> None: ...
    @property
    def connection(self) -> Connection: ...
    @property
    def frame(self) -> bytes:
        """The whole request."""
    @property
    def ticket(self) -> PullTicket: ...
    @property
    def queue(self) -> ConsumeQueue:
        """The one that it waits for."""
    deadline: float
    """The loop's time at which it is answered whatever there is."""
    done: bool
    """It waits no more."""

@final
class PullWaker:
    """Answers held pulls whose queue has something for them.

    `resume(held)` executes a pull with every check and answers it; it is called where the checks
    behind the ticket may come out differently now, or the offset has become wrong.
    """

    def __init__(
        self,
        *,
        tickets: PullTickets,
        store: MessageStore,
        resume: Callable[[HeldPull], None],
        wait_for_disk: Callable[[HeldPull, int], bool],
    ) -> None: ...
    def wake(self, held: HeldPull) -> bool:
        """False where nothing matches it yet: then it was not answered.

        True also where it has to wait for the log's bytes at a physical offset, as
        `wait_for_disk` was told.
        """
    def release_segments(self) -> None:
        """Hold no segment beyond the next look."""
