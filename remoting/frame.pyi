from typing_extensions import Buffer

def split(data: Buffer) -> tuple[list[bytes], int, bool]:
    """Whole frames at the head of a stream, the bytes that they are, and whether what follows is
    no frame (RocketMQ: NettyDecoder)."""
