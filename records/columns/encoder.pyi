from typing import final

import numpy as np
import numpy.typing as npt

@final
class RowEncoder:
    def __init__(self, topic: str, queue_id: int) -> None: ...
    def encode(
        self,
        flags: npt.NDArray[np.int32],
        sys_flags: npt.NDArray[np.int32],
        reconsume_times: npt.NDArray[np.int32],
        sizes: npt.NDArray[np.int32],
        queue_offsets: npt.NDArray[np.int64],
        physical_offsets: npt.NDArray[np.int64],
        born_us: npt.NDArray[np.int64],
        store_us: npt.NDArray[np.int64],
        property_offsets: npt.NDArray[np.int32],
        bodies: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]],
        names: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]],
        values: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]],
        born_hosts: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]],
        store_hosts: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]],
        ends: npt.NDArray[np.int64],
    ) -> bytes: ...
