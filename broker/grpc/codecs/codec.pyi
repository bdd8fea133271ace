from typing import final

from congreve.broker.grpc.codecs.call_accounts import CallAccounts
from congreve.broker.grpc.codecs.hashed_names import HashedNames
from congreve.broker.grpc.codecs.receives import ReceiveCodec
from congreve.remoting.lanes.http2 import CallCodec

SEND_KIND: int
ACK_KIND: int
CHANGE_KIND: int
RECEIVE_KIND: int

@final
class GrpcCodec(CallCodec):
    def __init__(
        self,
        reserved: HashedNames,
        *,
        template: str,
        max_body_size: int,
        accounts: CallAccounts | None = None,
        receives: ReceiveCodec | None = None,
    ) -> None: ...

def frame_of(
    codec: GrpcCodec, path: str, message: bytes, stream: int, timeout: str = ""
) -> bytes | None: ...
def messages_of(
    codec: GrpcCodec, frame: bytes, kind: int, note: bytes
) -> tuple[list[bytes], bytes]: ...
