# Sockets and epoll, as a lane's thread uses them.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "<sys/epoll.h>" nogil:
    """
    static inline uint64_t congreve_event_id(const struct epoll_event *event)
    {
        return event->data.u64;
    }

    static inline int congreve_epoll_set(int epoll, int what, int fd, uint32_t events, uint64_t id)
    {
        struct epoll_event event;
        event.events = events;
        event.data.u64 = id;
        return epoll_ctl(epoll, what, fd, &event);
    }

    static inline int congreve_epoll_read(int epoll, int fd, uint64_t id)
    {
        return congreve_epoll_set(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, id);
    }
    """
    struct epoll_event:
        uint32_t events
    uint32_t EPOLLIN
    uint32_t EPOLLOUT
    uint32_t EPOLLERR
    uint32_t EPOLLHUP
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    int EPOLL_CTL_MOD
    int EPOLL_CLOEXEC
    int epoll_create1(int flags)
    int epoll_wait(int epoll, epoll_event *events, int most, int timeout_ms)
    uint64_t event_id "congreve_event_id"(const epoll_event *event)
    int epoll_set "congreve_epoll_set"(int epoll, int what, int fd, uint32_t events, uint64_t id)

cdef extern from * nogil:
    int epoll_read "congreve_epoll_read"(int epoll, int fd, uint64_t id)

cdef extern from "<netinet/in.h>" nogil:
    """
    #include <netinet/tcp.h>
    #include <string.h>
    #include <sys/socket.h>

    /* Whether the end of this process resets the connection, instead of closing it. */
    static inline void congreve_reset_at_exit(int fd, int wanted)
    {
        struct linger linger = {wanted, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    }

    /* The next connection, with the packed address and the port of its peer; -1 and errno. */
    static inline int congreve_accept(int listener, uint8_t *address, int32_t *length,
                                      int32_t *port)
    {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;
        int one = 1;
        int fd = accept4(listener, (struct sockaddr *) &peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (peer.ss_family == AF_INET6) {
            const struct sockaddr_in6 *six = (const struct sockaddr_in6 *) &peer;
            *length = 16;
            *port = ntohs(six->sin6_port);
            memcpy(address, six->sin6_addr.s6_addr, 16);
        } else {
            const struct sockaddr_in *four = (const struct sockaddr_in *) &peer;
            *length = 4;
            *port = ntohs(four->sin_port);
            memcpy(address, &four->sin_addr, 4);
        }
        return fd;
    }

    /* Two connected sockets that do not block; -1 and errno. */
    static inline int congreve_pair(int *pair)
    {
        return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair);
    }
    """
    int make_pair "congreve_pair"(int *pair)
    int accept_peer "congreve_accept"(int listener, uint8_t *address, int32_t *length,
                                      int32_t *port)
    void reset_at_exit "congreve_reset_at_exit"(int fd, bint wanted)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL
    int MSG_PEEK
    Py_ssize_t send(int fd, const void *data, size_t length, int flags)
    Py_ssize_t recv(int fd, void *data, size_t length, int flags)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_NONBLOCK
    int EFD_CLOEXEC
    int eventfd(unsigned int value, int flags)
    int eventfd_read(int fd, uint64_t *value)
    int eventfd_write(int fd, uint64_t value)

cdef extern from "<unistd.h>" nogil:
    int close_fd "close"(int fd)
