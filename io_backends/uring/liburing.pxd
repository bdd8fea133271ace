# The functions of liburing (2.2 and later) that the ring uses.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    enum:
        RWF_DSYNC

cdef extern from "<liburing.h>" nogil:
    struct io_uring:
        int ring_fd
    struct io_uring_params:
        uint32_t flags
    struct io_uring_sqe:
        uint8_t flags
        int32_t rw_flags
        uint64_t user_data
    struct io_uring_cqe:
        uint64_t user_data
        int32_t res

    enum:
        IORING_SETUP_COOP_TASKRUN
        IOSQE_FIXED_FILE

    int io_uring_queue_init(unsigned int entries, io_uring *ring, unsigned int flags)
    void io_uring_queue_exit(io_uring *ring)
    int io_uring_register_buffers(io_uring *ring, const iovec *buffers, unsigned int count)
    int io_uring_register_files(io_uring *ring, const int *files, unsigned int count)
    int io_uring_register_files_update(io_uring *ring, unsigned int first, const int *files,
                                       unsigned int count)
    int io_uring_register_eventfd(io_uring *ring, int fd)
    io_uring_sqe *io_uring_get_sqe(io_uring *ring)
    void io_uring_prep_write(io_uring_sqe *sqe, int fd, const void *data, unsigned int length,
                             int64_t offset)
    void io_uring_prep_write_fixed(io_uring_sqe *sqe, int fd, const void *data,
                                   unsigned int length, int64_t offset, int buffer)
    void io_uring_prep_writev(io_uring_sqe *sqe, int fd, const iovec *parts, unsigned int count,
                              int64_t offset)
    int io_uring_submit(io_uring *ring)
    int io_uring_peek_cqe(io_uring *ring, io_uring_cqe **cqe)
    void io_uring_cqe_seen(io_uring *ring, io_uring_cqe *cqe)
