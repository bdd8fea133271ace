from libc.stdint cimport int64_t, uint8_t

from congreve.base.pthread cimport pthread_mutex_t

cdef extern from "<errno.h>" nogil:
    int *errno_of_thread "__errno_location"()

ctypedef void *(*NewSession)(void *context) noexcept nogil
ctypedef void (*Free)(void *what) noexcept nogil
ctypedef int (*SetDescriptor)(void *session, int fd) noexcept nogil
ctypedef int (*Of)(void *session) noexcept nogil
ctypedef int (*Read)(void *session, void *data, int size) noexcept nogil
ctypedef int (*Write)(void *session, const void *data, int size) noexcept nogil
ctypedef int (*ErrorOf)(void *session, int result) noexcept nogil
ctypedef void (*Clear)() noexcept nogil


cdef class TlsSessions:
    cdef pthread_mutex_t mutex
    cdef void *context          # an SSL_CTX; NULL: none yet
    cdef NewSession ssl_new
    cdef Free ssl_free
    cdef Free context_free
    cdef SetDescriptor ssl_set_fd
    cdef Free ssl_set_accept_state
    cdef Read ssl_read
    cdef Write ssl_write
    cdef ErrorOf ssl_get_error
    cdef Of ssl_shutdown
    cdef Of ssl_is_init_finished
    cdef Clear err_clear_error
    cdef readonly bint by_loop
    """Whether lanes hand encrypted connections over to the event loop."""
    cdef readonly bint enforcing
    """Whether connections that are not encrypted are closed."""
    cdef readonly int64_t handshake_ms
    """How long a handshake may take, in milliseconds."""

    # Begins the server's side of a session over a non-blocking socket; NULL without memory. Any
    # lane may call it.
    cdef void *begin(self, int fd) noexcept nogil
    # Ends a session, and tells the peer if its handshake is complete and `clean`.
    cdef void end(self, void *session, bint clean) noexcept nogil
    # Whether the handshake is complete.
    cdef bint is_ready(self, void *session) noexcept nogil
    # Decrypts up to `size` bytes into `data`; the first calls do the handshake. Returns the number
    # of bytes, 0 at the end of the connection, or the negative errno. It sets `again` when the
    # caller has to call it again once the socket is writable, without new bytes from the peer.
    cdef int64_t receive(self, void *session, uint8_t *data, int64_t size,
                         bint *again) noexcept nogil
    # Encrypts and sends bytes; returns how many, or the negative errno. After -EAGAIN the next call
    # has to begin with the same bytes.
    cdef int64_t send(self, void *session, const uint8_t *data, int64_t length) noexcept nogil
    cdef int64_t errno_of(self, void *session, int result) noexcept nogil
