from typing import Any, final

import numpy as np
from typing_extensions import Buffer

def batch_element(body: Buffer, properties: bytes, flag: int) -> bytes: ...

@final
class BatchEncoder:
    def __init__(self, properties: bytes, size_max: int) -> None: ...
    @property
    def size_max(self) -> int: ...
    def take_bodies(
        self, bodies: list[Any], start: int, id_head: str, counter: int
    ) -> tuple[bytes, str, int]: ...
    def take_column(
        self,
        data: Buffer,
        offsets: np.ndarray[Any, np.dtype[np.int64]],
        start: int,
        id_head: str,
        counter: int,
    ) -> tuple[bytes, str, int]: ...
