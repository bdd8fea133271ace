from libc.stdint cimport int64_t

# What the kernel takes now of bytes for a socket, from memory or from a file's pages, which it
# passes on without a copy: no code may write there any more. Fewer than `length` where the socket
# is full, -1 and errno where it or the file is broken. Behind a head more follows at once.
cdef int64_t send_head(int socket, const void *data, int64_t length) noexcept nogil
cdef int64_t send_file(int socket, int file, int64_t offset, int64_t length) noexcept nogil
