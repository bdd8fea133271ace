import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

def copy_records(
    records: Buffer,
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    first: int,
    target: Buffer,
    physical_offset: int,
) -> tuple[int, int]: ...
def put_blank(target: Buffer) -> None: ...
