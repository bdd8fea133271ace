from typing import Any, final

import numpy as np
from typing_extensions import Buffer

def batch_element(body: Buffer, properties: bytes, flag: int) -> bytes:
    """One element of a batch's body (RocketMQ: MessageDecoder.encodeMessage)."""

@final
class BatchEncoder:
    """Bodies that have the same properties, as batches of at most `size_max` bytes.

    Each message gets an id of 32 hex digits: `id_head` (28 digits), then a counter that goes up by
    one with each message. `properties` are the others, encoded.
    """

    def __init__(self, properties: bytes, size_max: int) -> None: ...
    @property
    def size_max(self) -> int: ...
    def take_bodies(
        self, bodies: list[Any], start: int, id_head: str, counter: int
    ) -> tuple[bytes, str, int]:
        """A batch of the bodies from `start` on, the ids of its messages with commas between, and
        the index behind the last one.

        RecordError for an empty body, and for one that does not fit; TypeError for no buffer.
        """
    def take_column(
        self,
        data: Buffer,
        offsets: np.ndarray[Any, np.dtype[np.int64]],
        start: int,
        id_head: str,
        counter: int,
    ) -> tuple[bytes, str, int]:
        """The same of a column: body i is ``data[offsets[i]:offsets[i + 1]]``."""
