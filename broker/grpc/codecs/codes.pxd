from libc.stdint cimport int32_t

# Numbers of definition.proto's Code that compiled code writes.
cdef enum:
    OK = 20000
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_NOT_FOUND = 40401
    TOO_MANY_REQUESTS = 42900

# The Code for a code of remoting.
cpdef int32_t code_of(int32_t remoting) noexcept nogil
# The same for the answer to an acknowledgement, or to a change of the invisible time.
cpdef int32_t code_of_settling(int32_t remoting) noexcept nogil
