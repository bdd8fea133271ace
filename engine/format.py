"""The layout of queue entries as a numpy dtype: format.pxd for Python and analysis."""

import numpy as np

#: One consume-queue entry, 20 bytes (RocketMQ: ConsumeQueue.CQ_STORE_UNIT_SIZE).
CONSUME_QUEUE_ENTRY = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
