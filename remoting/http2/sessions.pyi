from typing import Self, final

from congreve.remoting.lanes.http2 import CallCodec, Http2Sessions
from congreve.remoting.lanes.mailbox import Mailbox

@final
class NgHttp2Sessions(Http2Sessions):
    def __new__(cls, codec: CallCodec, *, message_max: int) -> Self: ...

def exchange(sessions: NgHttp2Sessions, to_loop: Mailbox, data: bytes) -> tuple[bytes, bytes]: ...
