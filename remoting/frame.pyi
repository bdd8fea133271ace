from typing_extensions import Buffer

def split(data: Buffer) -> tuple[list[bytes], int, bool]:
    """Whole frames at the head of a stream, the bytes that they are, and whether what follows is
    no frame (RocketMQ: NettyDecoder)."""

def decode(
    data: bytes, hot: int = 0
) -> tuple[int, int, int, int, dict[str, str]] | tuple[str | int | bool | None, ...] | None:
    """What compiled code makes of one whole frame; None: it leaves the frame to Python.

    (code, version, opaque, flag, ext fields). With `hot` a request code, the fields of its typed
    header instead: 11 a pull (PullMessageRequestHeader, optional fields last), 10 a send
    (SendMessageRequestHeader without unitMode and maxReconsumeTimes), any other a send with short
    names (SendMessageRequestHeaderV2).
    """
