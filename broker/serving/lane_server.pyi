from typing import final

from congreve.broker.pop.lanes.server import LanePopServer
from congreve.broker.pull.lanes.pulls import LanePulls
from congreve.broker.serving.fastpath import FastPath
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.store import MessageStore
from congreve.remoting.lanes.lane import LaneSink

ARRIVED_KIND: int
APPENDED_KIND: int
PULL_ENDED_KIND: int
PULL_UNREADABLE_KIND: int

def queues_of(data: bytes) -> list[ConsumeQueue]: ...

@final
class LaneServer(LaneSink):
    by_handlers: int
    accepting: bool
    @property
    def path(self) -> FastPath: ...
    @property
    def pulls(self) -> LanePulls: ...
    @property
    def pops(self) -> LanePopServer: ...
    @property
    def waiting(self) -> int: ...
    def __init__(
        self,
        path: FastPath,
        pulls: LanePulls,
        pops: LanePopServer,
        store: MessageStore,
        *,
        posts_appends: bool,
        confirm: ConfirmOffset,
        timeout_s: float,
        leader: LaneServer | None = None,
    ) -> None: ...
    def follow(self, lanes: list[LaneServer]) -> None: ...
    def notify(self, queue: ConsumeQueue) -> None: ...
    def dismiss(self, remark: bytes) -> None: ...
    def show_more(self) -> None: ...
    def end_pulls(self) -> None: ...
    def recheck_pops(self) -> None: ...
    def set_store_host(self, host: bytes) -> None: ...
