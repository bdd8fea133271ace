from typing import Self, final

from congreve.remoting.lanes.http2 import CallCodec, Http2Sessions

@final
class NgHttp2Sessions(Http2Sessions):
    def __new__(cls, codec: CallCodec, *, message_max: int) -> Self: ...
