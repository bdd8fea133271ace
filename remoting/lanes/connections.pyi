from collections.abc import Sequence
from typing import Self, final

from congreve.remoting.lanes.http2 import Http2Sessions
from congreve.remoting.tls.sessions import TlsSessions

def next_id(id: int) -> int: ...

@final
class ConnectionTable:
    def __new__(
        cls,
        tls: TlsSessions | None,
        idle_s: float,
        first_frame_s: float,
        frame_timeout_s: float,
        frame_bytes_per_s: float,
        http2: Http2Sessions | None = None,
    ) -> Self: ...
    @property
    def unfinished_bytes(self) -> int: ...

@final
class Listeners:
    def __new__(cls, epoll: int, descriptors: Sequence[int], first_id: int) -> Self: ...
