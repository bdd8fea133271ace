from typing import final

from congreve.remoting.connection import Connection

class FrameSink:
    """Takes whole frames from connections' bytes (RocketMQ: NettyDecoder, NettyServerHandler)."""

    def feed(self, connection: Connection, buffer: memoryview, end: int) -> int:
        """Take the whole frames in `buffer[:end]`; returns how many bytes they were.

        Raises FrameError where the stream cannot be framed. `buffer` may change afterwards.
        """

@final
class CommandSink(FrameSink):
    """Gives every frame to Connection.on_frame, and none while the connection's reading pauses."""
