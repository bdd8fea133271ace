from collections.abc import Sequence
from typing import Any, Self, final

from congreve.remoting.lanes.handle import LaneHandle
from congreve.remoting.lanes.http2 import Http2Sessions
from congreve.remoting.tls.sessions import TlsSessions

class LaneSink:
    def __new__(cls, *_: Any, **__: Any) -> Self: ...

@final
class Lane:
    def __new__(
        cls,
        listeners: Sequence[int],
        sink: LaneSink,
        *,
        poll_s: float = 0.0,
        idle_s: float = 120.0,
        first_frame_s: float = 30.0,
        frame_timeout_s: float = 30.0,
        frame_bytes_per_s: float = 32768,
        unfinished_max: int = ...,
        entries_max: int = 16384,
        entry_bytes_max: int = ...,
        tls: TlsSessions | None = None,
        http2: Http2Sessions | None = None,
    ) -> Self: ...
    @property
    def handle(self) -> LaneHandle: ...
    @property
    def turns(self) -> int: ...
    @property
    def connections(self) -> int: ...
    @property
    def cut_count(self) -> int: ...
    def run(self) -> None: ...
