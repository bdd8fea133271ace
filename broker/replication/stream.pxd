# The HA port's stream, as compiled code reads and writes it (frames.py describes it).

cdef enum:
    HEADER_SIZE = 12            # i64 physical offset, i32 size
    REPORT_SIZE = 8             # i64 physical offset

cdef extern from "<sys/socket.h>" nogil:
    """
    #include <poll.h>
    #include <sys/uio.h>

    /* send() of two pieces. */
    static inline Py_ssize_t congreve_send_both(int fd, const void *first, size_t first_size,
                                                const void *second, size_t second_size)
    {
        struct iovec pieces[2] = {
            {(void *) first, first_size}, {(void *) second, second_size},
        };
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
        return sendmsg(fd, &message, MSG_NOSIGNAL);
    }

    /* recv() into two pieces. */
    static inline Py_ssize_t congreve_receive_both(int fd, void *first, size_t first_size,
                                                   void *second, size_t second_size)
    {
        struct iovec pieces[2] = {{first, first_size}, {second, second_size}};
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
        return recvmsg(fd, &message, 0);
    }

    /* Waits until one of two descriptors is readable: bit 0 is the first, bit 1 the second. */
    static inline int congreve_readable(int first, int second, int timeout_ms)
    {
        struct pollfd both[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
        if (poll(both, 2, timeout_ms) <= 0)
            return 0;
        return (both[0].revents != 0) | (both[1].revents != 0) << 1;
    }
    """
    Py_ssize_t send_both "congreve_send_both"(int fd, const void *first, size_t first_size,
                                              const void *second, size_t second_size)
    Py_ssize_t receive_both "congreve_receive_both"(int fd, void *first, size_t first_size,
                                                    void *second, size_t second_size)
    int readable "congreve_readable"(int first, int second, int timeout_ms)
