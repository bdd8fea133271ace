# The byte layout of a stored message, on disk and in the body of a pull: the only place where it is
# written down. All numbers are big endian. Hosts are 4 (IPv4) or 16 (IPv6) address bytes, then the
# port as i32.
#
# Record (offsets for IPv4 hosts; each IPv6 host shifts what follows by 12)
#
#    0 size i32          20 queueOffset i64       48 bornHost 8         76 preparedOffset i64
#    4 magic i32         28 physicalOffset i64    56 storeTimestamp i64 84 bodyLen i32, body
#    8 bodyCRC i32       36 sysFlag i32           64 storeHost 8        .. topicLen i8, topic
#   12 queueId i32       40 bornTimestamp i64     72 reconsumeTimes i32 .. propsLen i16, props
#   16 flag i32
#
# Blank at the end of a segment:   0 remaining i32   4 BLANK_MAGIC i32   (>= 8 bytes)
# Batch element on the wire: i32 size, magic 0, crc 0, flag, bodyLen; body; i16 propsLen; props

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

    BATCH_ELEMENT_FIXED = 22

    NAME_VALUE_SEPARATOR = 1
    PROPERTY_SEPARATOR = 2
