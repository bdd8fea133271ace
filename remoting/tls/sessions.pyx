"""TLS of a lane's connections, by the OpenSSL that Python's ssl module has loaded.

A session reads and writes the connection's socket itself, without the interpreter's lock.
"""

cimport cython
from libc.errno cimport EAGAIN, ECONNRESET, EPROTO, errno
from libc.stdint cimport uintptr_t

from congreve.base.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef enum:
    # OpenSSL's numbers of SSL_get_error().
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_WANT_WRITE = 3
    SSL_ERROR_SYSCALL = 5
    SSL_ERROR_ZERO_RETURN = 6
    # And of a callback about ALPN.
    ALPN_OK = 0
    ALPN_NONE = 3
    PIECE_MAX = 1 << 20         # bytes given to one call


cdef int select_http2(void *session, const uint8_t **out, uint8_t *out_length,
                      const uint8_t *offered, unsigned int length, void *_) noexcept nogil:
    """Choose h2 of the protocols that a client offers, each with its length in front (ALPN)."""
    cdef unsigned int at = 0
    while at + 3 <= length:
        if offered[at] == 2 and offered[at + 1] == c"h" and offered[at + 2] == c"2":
            out[0] = offered + at + 1
            out_length[0] = 2
            return ALPN_OK
        at += 1 + offered[at]
    return ALPN_NONE


def alpn_callback():
    """The address of a function for SSL_CTX_set_alpn_select_cb(), which any thread may call."""
    return <uintptr_t> &select_http2


@cython.final
cdef class TlsSessions:
    """Begins and serves the sessions of one server; several lanes may share it.

    `functions` has the addresses of OpenSSL's functions by name; without them the event loop has to
    serve encrypted connections. `enforcing` refuses connections
    that are not encrypted. (RocketMQ: TlsHelper, FileRegionEncoder.)
    """

    def __cinit__(self, dict functions not None, *, bint enforcing, double handshake_timeout_s):
        pthread_mutex_init(&self.mutex, NULL)
        self.enforcing = enforcing
        self.handshake_ms = <int64_t> (handshake_timeout_s * 1000)
        self.by_loop = not functions
        if self.by_loop:
            return
        self.ssl_new = <NewSession> <uintptr_t> functions["SSL_new"]
        self.ssl_free = <Free> <uintptr_t> functions["SSL_free"]
        self.context_free = <Free> <uintptr_t> functions["SSL_CTX_free"]
        self.ssl_set_fd = <SetDescriptor> <uintptr_t> functions["SSL_set_fd"]
        self.ssl_set_accept_state = <Free> <uintptr_t> functions["SSL_set_accept_state"]
        self.ssl_read = <Read> <uintptr_t> functions["SSL_read"]
        self.ssl_write = <Write> <uintptr_t> functions["SSL_write"]
        self.ssl_get_error = <ErrorOf> <uintptr_t> functions["SSL_get_error"]
        self.ssl_shutdown = <Of> <uintptr_t> functions["SSL_shutdown"]
        self.ssl_is_init_finished = <Of> <uintptr_t> functions["SSL_is_init_finished"]
        self.err_clear_error = <Clear> <uintptr_t> functions["ERR_clear_error"]

    def __dealloc__(self):
        if self.context != NULL:
            self.context_free(self.context)
        pthread_mutex_destroy(&self.mutex)

    def replace_context(self, uintptr_t context):
        """Use another SSL_CTX for new sessions; this object frees it. Open sessions keep theirs."""
        cdef void *before
        pthread_mutex_lock(&self.mutex)
        before, self.context = self.context, <void *> context
        pthread_mutex_unlock(&self.mutex)
        if before != NULL:
            self.context_free(before)

    cdef void *begin(self, int fd) noexcept nogil:
        cdef void *session = NULL
        pthread_mutex_lock(&self.mutex)
        if self.context != NULL:
            session = self.ssl_new(self.context)
        pthread_mutex_unlock(&self.mutex)
        if session == NULL:
            return NULL
        if self.ssl_set_fd(session, fd) != 1:
            self.ssl_free(session)
            return NULL
        self.ssl_set_accept_state(session)
        return session

    cdef void end(self, void *session, bint clean) noexcept nogil:
        if clean and self.is_ready(session):
            self.ssl_shutdown(session)
        self.err_clear_error()
        self.ssl_free(session)

    cdef bint is_ready(self, void *session) noexcept nogil:
        return self.ssl_is_init_finished(session) == 1

    cdef int64_t receive(self, void *session, uint8_t *data, int64_t size,
                         bint *again) noexcept nogil:
        cdef int64_t got = 0
        cdef int64_t error
        cdef int step
        again[0] = False
        while got < size:
            self.err_clear_error()
            errno_of_thread()[0] = 0
            step = self.ssl_read(session, data + got, <int> min(size - got, <int64_t> PIECE_MAX))
            if step > 0:
                got += step
                continue
            error = self.errno_of(session, step)
            if got:
                again[0] = error != -EAGAIN     # the next call returns the error
                return got
            again[0] = error == -EAGAIN and (
                self.ssl_get_error(session, step) == SSL_ERROR_WANT_WRITE
            )
            return error
        again[0] = True     # more may be decrypted already
        return got

    cdef int64_t send(self, void *session, const uint8_t *data, int64_t length) noexcept nogil:
        cdef int step
        cdef int64_t error
        self.err_clear_error()
        errno_of_thread()[0] = 0
        step = self.ssl_write(session, data, <int> min(length, <int64_t> PIECE_MAX))
        if step > 0:
            return step
        error = self.errno_of(session, step)
        return error if error else -ECONNRESET

    cdef int64_t errno_of(self, void *session, int result) noexcept nogil:
        """The negative errno of a failed call; 0 at the end of the connection."""
        cdef int kind = self.ssl_get_error(session, result)
        if kind == SSL_ERROR_WANT_READ or kind == SSL_ERROR_WANT_WRITE:
            return -EAGAIN
        if kind == SSL_ERROR_ZERO_RETURN:
            return 0
        if kind == SSL_ERROR_SYSCALL:
            return -errno   # 0: the peer closed the connection without an alert
        return -EPROTO
