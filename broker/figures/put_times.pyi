from collections.abc import Sequence
from typing import final

from congreve.broker.figures.slow_chunk import SlowChunk
from congreve.remoting.messages.codes import RequestCode

BOUNDS_US: tuple[int, ...]
RPC_BOUNDS_MS: tuple[int, ...]
COMPILED: tuple[tuple[RequestCode, bool], ...]
NO_REQUESTS: tuple[int, ...]

def requests_of(code: int) -> tuple[int, ...]: ...

@final
class PutTimes:
    slow_ns: int
    def count(
        self,
        begun_ns: int,
        messages: int,
        requests: Sequence[int] = ...,
        *,
        appended_ns: int = 0,
        durable_ns: int = 0,
        peer: bytes | None = None,
        by_grpc: bool = ...,
    ) -> None: ...
    def take_slow(self) -> list[SlowChunk]: ...
    @property
    def counts(self) -> list[int]: ...
    @property
    def sum_ns(self) -> int: ...
    @property
    def max_ns(self) -> int: ...
    @property
    def rpc_counts(self) -> list[list[int]]: ...
    @property
    def rpc_sums_ns(self) -> list[int]: ...
