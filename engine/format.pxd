# The byte layout of the store's files beside the commit log, for all compiled code (records.layout
# has the records). format.py has that of queue entries as a numpy dtype; a test compares the two.
# All numbers are big endian.
#
# Consume queue entry, 20 bytes:   0 physicalOffset i64   8 size i32   12 tagsCode i64
# Index file: header 40, slots 4 each, entries 20 each:
#   header  0 beginTimestamp i64  8 endTimestamp i64  16 beginPhy i64  24 endPhy i64
#          32 usedSlots i32      36 count i32 (starts at 1)
#   entry   0 keyHash i32  4 physicalOffset i64  12 secondsSinceBegin i32  16 previous i32

cdef enum:
    CQ_ENTRY = 20
    CQ_AT_SIZE = 8
    CQ_AT_TAGS_CODE = 12
    CQ_FILLER_SIZE = 0x7FFFFFFF

    INDEX_HEADER = 40
    INDEX_SLOT = 4
    INDEX_ENTRY = 20
    INDEX_HEADER_AT_BEGIN_TIMESTAMP = 0
    INDEX_HEADER_AT_END_TIMESTAMP = 8
    INDEX_HEADER_AT_BEGIN_PHYSICAL = 16
    INDEX_HEADER_AT_END_PHYSICAL = 24
    INDEX_HEADER_AT_USED_SLOTS = 32
    INDEX_HEADER_AT_COUNT = 36
    INDEX_ENTRY_AT_PHYSICAL_OFFSET = 4
    INDEX_ENTRY_AT_SECONDS = 12
    INDEX_ENTRY_AT_PREVIOUS = 16
