from libc.stdint cimport int64_t

# Sends bytes to a socket, from memory or from a file's pages, which the kernel does not copy: no
# code may write to them any more. Returns the number of bytes that the kernel took, fewer than
# `length` if the socket is full; -1 and errno after an error of the socket or the file. More bytes
# follow a head at once.
cdef int64_t send_head(int socket, const void *data, int64_t length) noexcept nogil
cdef int64_t send_file(int socket, int file, int64_t offset, int64_t length) noexcept nogil
