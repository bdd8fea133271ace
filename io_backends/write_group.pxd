# Writes of a group of messages to the file of a segment.
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t
from posix.unistd cimport pwrite

from congreve.io_backends.page cimport PAGE

cdef enum:
    WRITE_MAX = 8 << 20     # bytes a call, so that a sync request does not wait long


# Writes all bytes, repeating partial writes; returns 0 or errno.
cdef inline int write_all(int fd, const uint8_t *data, int64_t length,
                          int64_t offset) noexcept nogil:
    cdef int64_t done
    while length > 0:
        done = pwrite(fd, data, min(length, WRITE_MAX), offset)
        if done < 0 and errno == EINTR:
            continue
        if done <= 0:
            return errno if done < 0 else EIO
        data += done
        offset += done
        length -= done
    return 0


# Writes all pages but the first one, then the first one: after a kill in between, the log ends
# before the group, and no batch is incomplete. The kernel writes one page as a whole.
cdef inline int write_group(int fd, const uint8_t *data, int64_t start,
                            int64_t end) noexcept nogil:
    cdef int64_t head_end = min(start - start % PAGE + PAGE, end)
    cdef inline int error = write_all(fd, data + head_end, end - head_end, head_end)
    if error == 0:
        error = write_all(fd, data + start, head_end - start, start)
    return error
