# The kernel's unit of mappings, and RocketMQ's of a flush (OS_PAGE_SIZE).
cdef enum:
    PAGE = 4096
