from typing_extensions import Buffer

def is_ordinary(body: Buffer) -> bool:
    """What the hot path asks of a batch: False where Python has to look at its members."""

def member_properties(body: Buffer) -> list[bytes]:
    """The property string of each member (RocketMQ: MessageBatch); as far as it is well formed."""
