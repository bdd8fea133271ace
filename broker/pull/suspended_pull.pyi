from collections.abc import Callable
from typing import final

from congreve.broker.pull.validated_pull import ValidatedPull, ValidatedPulls
from congreve.broker.quotas.held_place import HeldPlace
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

@final
class SuspendedPull:
    def __init__(
        self,
        connection: Connection,
        frame: bytes,
        validated: ValidatedPull,
        *,
        offset: int,
        max_count: int,
        serialize_type: int,
        opaque: int,
    ) -> None: ...
    @property
    def connection(self) -> Connection: ...
    @property
    def frame(self) -> bytes: ...
    @property
    def validated(self) -> ValidatedPull: ...
    @property
    def queue(self) -> ConsumeQueue: ...
    @property
    def begun_ns(self) -> int: ...
    deadline: float
    polls: bool
    place: HeldPlace | None
    done: bool

@final
class PullWaker:
    def __init__(
        self,
        *,
        validated_pulls: ValidatedPulls,
        store: MessageStore,
        resume: Callable[[SuspendedPull], None],
        wait_for_disk: Callable[[SuspendedPull, int], bool],
        wait_for_repair: Callable[[SuspendedPull, tuple[ConsumeQueue, int]], bool],
        charge: Callable[[SuspendedPull, int, int], None],
        answered: Callable[[SuspendedPull, int], None],
    ) -> None: ...
    def answer(self, held: SuspendedPull, answer: RemotingCommand) -> None: ...
    def wake(self, held: SuspendedPull) -> bool: ...
    def repair(self, held: SuspendedPull, offset: int) -> bool: ...
    def release_segments(self) -> None: ...
