from typing import final

from congreve.remoting.errors import FrameError
from congreve.remoting.readbuffer import ReadBuffer
from congreve.remoting.shortpoll import ShortPoll

class FrameSink:
    """Takes whole frames from connections' bytes (RocketMQ: NettyDecoder, NettyServerHandler)."""

@final
class CommandSink(FrameSink):
    """Gives every frame to the connection's on_frame, and none while its reading pauses."""

class FrameReader:
    """How a connection reads: what asyncio.BufferedProtocol asks of it, and what it keeps of a
    frame that has not arrived whole. A connection adds `on_frame` and `on_unframeable`."""

    active: bool
    """Whether bytes came since this was last set to False."""
    reading_paused: bool
    """Whether the peer is ahead of us; a sink takes no further frame then."""

    def __init__(
        self, sink: FrameSink, read_buffer: ReadBuffer, poll: ShortPoll | None = None
    ) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes are there: the sink takes the whole frames."""

    def read_stash(self) -> None:
        """After a pause: the sink takes the frames that had arrived before it."""

    def drop_stash(self) -> None:
        """Forget what had arrived."""

    def on_frame(self, frame: bytes) -> None:
        """Take one whole frame."""

    def on_unframeable(self, error: FrameError) -> None:
        """This stream cannot be framed any more."""
