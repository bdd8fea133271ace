"""Direct writes to a socket in which no other bytes wait, without a copy."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT
    int MSG_MORE
    int MSG_NOSIGNAL
    Py_ssize_t send(int fd, const void *data, size_t length, int flags)

cdef extern from "<sys/sendfile.h>" nogil:
    Py_ssize_t sendfile(int socket, int file, int64_t *offset, size_t length)


cdef int64_t send_head(int socket, const void *data, int64_t length) noexcept nogil:
    cdef int64_t taken = 0
    cdef Py_ssize_t step
    while taken < length:
        step = send(socket, <const char *> data + taken, length - taken,
                    MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE)
        if step >= 0:
            taken += step
        elif errno == EAGAIN:
            break
        elif errno != EINTR:
            return -1
    return taken


cdef int64_t send_file(int socket, int file, int64_t offset, int64_t length) noexcept nogil:
    cdef int64_t taken = 0
    cdef int64_t at = offset
    cdef Py_ssize_t step
    while taken < length:
        step = sendfile(socket, file, &at, length - taken)
        if step > 0:
            taken += step
        elif step < 0 and errno == EAGAIN:
            break
        elif step == 0 or errno != EINTR:  # 0: the file ends here
            return -1
    return taken
