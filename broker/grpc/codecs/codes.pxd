from libc.stdint cimport int32_t

# Numbers of definition.proto's Code that compiled code writes.
cdef enum:
    OK = 20000
    ILLEGAL_FILTER_EXPRESSION = 40010
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    MESSAGE_CORRUPTED = 40016
    FORBIDDEN = 40300
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    TOO_MANY_REQUESTS = 42900
    LITE_TOPIC_QUOTA_EXCEEDED = 42901
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402

# The Code for a code of remoting.
cpdef int32_t code_of(int32_t remoting) noexcept nogil
# The same for the answer to an acknowledgement, or to a change of the invisible time.
cpdef int32_t code_of_settling(int32_t remoting) noexcept nogil
