# The byte layout of every file of the store: the only place where it is written down for compiled
# code. format.py says the same as numpy dtypes for Python; a test holds the two equal.
# All numbers are big endian. Hosts are 4 (IPv4) or 16 (IPv6) address bytes, then the port as i32.
#
# Commit-log record (offsets for IPv4 hosts; each IPv6 host shifts what follows by 12)
#
#    0 size i32          20 queueOffset i64       48 bornHost 8         76 preparedOffset i64
#    4 magic i32         28 physicalOffset i64    56 storeTimestamp i64 84 bodyLen i32, body
#    8 bodyCRC i32       36 sysFlag i32           64 storeHost 8        .. topicLen i8, topic
#   12 queueId i32       40 bornTimestamp i64     72 reconsumeTimes i32 .. propsLen i16, props
#   16 flag i32
#
# Blank at the end of a segment:   0 remaining i32   4 BLANK_MAGIC i32   (>= 8 bytes)
# Consume queue entry, 20 bytes:   0 physicalOffset i64   8 size i32   12 tagsCode i64
# Index file: header 40, slots 4 each, entries 20 each:
#   header  0 beginTimestamp i64  8 endTimestamp i64  16 beginPhy i64  24 endPhy i64
#          32 usedSlots i32      36 count i32 (starts at 1)
#   entry   0 keyHash i32  4 physicalOffset i64  12 secondsSinceBegin i32  16 previous i32
# checkpoint, 4096 bytes:  0 physicMsgTimestamp i64  8 logicsMsgTimestamp i64  16 indexMsgTimestamp

cdef enum:
    RECORD_MAGIC = -626843481
    BLANK_MAGIC = -875286124
    BLANK_MIN = 8

    AT_SIZE = 0
    AT_MAGIC = 4
    AT_BODY_CRC = 8
    AT_QUEUE_ID = 12
    AT_FLAG = 16
    AT_QUEUE_OFFSET = 20
    AT_PHYSICAL_OFFSET = 28
    AT_SYS_FLAG = 36
    AT_BORN_TIMESTAMP = 40
    AT_BORN_HOST = 48
    RECORD_FIXED = 91        # an IPv4/IPv4 record with empty body, topic and properties
    HOST_V4 = 8
    HOST_V6 = 20

    SYS_COMPRESSED = 0x1
    SYS_MULTI_TAGS = 0x2
    SYS_TRANSACTION_MASK = 0xC
    SYS_TRANSACTION_PREPARED = 0x4
    SYS_TRANSACTION_COMMIT = 0x8
    SYS_TRANSACTION_ROLLBACK = 0xC
    SYS_BORN_HOST_V6 = 0x10
    SYS_STORE_HOST_V6 = 0x20

    TOPIC_MAX = 127
    PROPERTIES_MAX = 32767

    CQ_ENTRY = 20
    CQ_AT_SIZE = 8
    CQ_AT_TAGS_CODE = 12
    CQ_FILLER_SIZE = 0x7FFFFFFF

    INDEX_HEADER = 40
    INDEX_SLOT = 4
    INDEX_ENTRY = 20

    CHECKPOINT_FILE = 4096
    BATCH_MESSAGE_FIXED = 22  # i32 size, magic, crc, flag, bodyLen; i16 propsLen

    NAME_VALUE_SEPARATOR = 1
    PROPERTY_SEPARATOR = 2
