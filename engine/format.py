"""The store's file layouts as numpy dtypes: format.pxd for Python and analysis."""

import numpy as np

#: One consume-queue entry, 20 bytes (RocketMQ: ConsumeQueue.CQ_STORE_UNIT_SIZE).
CONSUME_QUEUE_ENTRY = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])

#: Head of an index file, 40 bytes (RocketMQ: IndexHeader).
INDEX_HEADER = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_physical", ">i8"),
        ("end_physical", ">i8"),
        ("used_slots", ">i4"),
        ("count", ">i4"),
    ]
)

#: Number of the newest entry of a hash slot, 0 for none.
INDEX_SLOT = np.dtype(">i4")

#: One index entry, 20 bytes (RocketMQ: IndexFile.putKey).
INDEX_ENTRY = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
