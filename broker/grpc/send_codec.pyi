from collections.abc import Iterable
from typing import final

from congreve.broker.grpc.call_accounts import CallAccounts
from congreve.remoting.lanes.http2 import CallCodec

@final
class GrpcCodec(CallCodec):
    def __init__(
        self,
        reserved: Iterable[str],
        *,
        template: str,
        max_body_size: int,
        accounts: CallAccounts | None = None,
    ) -> None: ...

def frame_of(codec: GrpcCodec, path: str, message: bytes, stream: int) -> bytes | None: ...
def message_of(codec: GrpcCodec, frame: bytes, note: bytes) -> bytes: ...
