# What sessions.pyx calls of libnghttp2.
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from "<nghttp2/nghttp2.h>" nogil:
    """
    #include <string.h>

    /* A header whose name and value outlive the session's use of them. */
    static inline nghttp2_nv congreve_constant(const char *name, const char *value)
    {
        nghttp2_nv nv = {(uint8_t *) name, (uint8_t *) value, strlen(name), strlen(value),
                         NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
        return nv;
    }

    /* One whose value is copied. */
    static inline nghttp2_nv congreve_copied(const char *name, const uint8_t *value, size_t length)
    {
        nghttp2_nv nv = {(uint8_t *) name, (uint8_t *) value, strlen(name), length,
                         NGHTTP2_NV_FLAG_NO_COPY_NAME};
        return nv;
    }
    """
    ctypedef struct nghttp2_session
    ctypedef struct nghttp2_session_callbacks
    ctypedef struct nghttp2_option
    ctypedef struct nghttp2_nv:
        size_t namelen
        size_t valuelen
    ctypedef struct nghttp2_frame_hd:
        size_t length
        int32_t stream_id
        uint8_t type
        uint8_t flags
    ctypedef struct nghttp2_headers:
        int cat
    ctypedef union nghttp2_frame:
        nghttp2_frame_hd hd
        nghttp2_headers headers
    ctypedef struct nghttp2_settings_entry:
        int32_t settings_id
        uint32_t value
    ctypedef union nghttp2_data_source:
        void *ptr
    ctypedef Py_ssize_t (*nghttp2_data_source_read_callback)(
        nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
        uint32_t *data_flags, nghttp2_data_source *source, void *user_data
    ) noexcept nogil
    ctypedef struct nghttp2_data_provider:
        nghttp2_data_source source
        nghttp2_data_source_read_callback read_callback

    int NGHTTP2_DATA
    int NGHTTP2_HEADERS
    int NGHTTP2_PRIORITY
    int NGHTTP2_HCAT_REQUEST
    int NGHTTP2_FLAG_NONE
    int NGHTTP2_FLAG_END_STREAM
    int NGHTTP2_NO_ERROR
    int NGHTTP2_INTERNAL_ERROR
    int NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
    int NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE
    int NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE
    int NGHTTP2_DATA_FLAG_EOF
    int NGHTTP2_DATA_FLAG_NO_END_STREAM
    int NGHTTP2_ERR_DEFERRED
    int NGHTTP2_ERR_NOMEM
    int NGHTTP2_ERR_CALLBACK_FAILURE
    int NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE

    nghttp2_nv constant_header "congreve_constant"(const char *name, const char *value)
    nghttp2_nv copied_header "congreve_copied"(const char *name, const uint8_t *value,
                                               size_t length)

    int nghttp2_session_callbacks_new(nghttp2_session_callbacks **callbacks)
    void nghttp2_session_callbacks_del(nghttp2_session_callbacks *callbacks)
    void nghttp2_session_callbacks_set_on_begin_headers_callback(
        nghttp2_session_callbacks *callbacks,
        int (*on)(nghttp2_session *, const nghttp2_frame *, void *) noexcept nogil)
    void nghttp2_session_callbacks_set_on_header_callback(
        nghttp2_session_callbacks *callbacks,
        int (*on)(nghttp2_session *, const nghttp2_frame *, const uint8_t *, size_t,
                  const uint8_t *, size_t, uint8_t, void *) noexcept nogil)
    void nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        nghttp2_session_callbacks *callbacks,
        int (*on)(nghttp2_session *, uint8_t, int32_t, const uint8_t *, size_t,
                  void *) noexcept nogil)
    void nghttp2_session_callbacks_set_on_frame_recv_callback(
        nghttp2_session_callbacks *callbacks,
        int (*on)(nghttp2_session *, const nghttp2_frame *, void *) noexcept nogil)
    void nghttp2_session_callbacks_set_on_stream_close_callback(
        nghttp2_session_callbacks *callbacks,
        int (*on)(nghttp2_session *, int32_t, uint32_t, void *) noexcept nogil)
    int nghttp2_option_new(nghttp2_option **option)
    void nghttp2_option_del(nghttp2_option *option)
    void nghttp2_option_set_no_auto_window_update(nghttp2_option *option, int val)
    void nghttp2_option_set_no_closed_streams(nghttp2_option *option, int val)
    int nghttp2_session_server_new2(nghttp2_session **session,
                                    const nghttp2_session_callbacks *callbacks, void *user_data,
                                    const nghttp2_option *option)
    void nghttp2_session_del(nghttp2_session *session)
    Py_ssize_t nghttp2_session_mem_recv(nghttp2_session *session, const uint8_t *data,
                                        size_t length)
    Py_ssize_t nghttp2_session_mem_send(nghttp2_session *session, const uint8_t **data)
    int nghttp2_session_want_read(nghttp2_session *session)
    int nghttp2_session_want_write(nghttp2_session *session)
    int nghttp2_session_set_stream_user_data(nghttp2_session *session, int32_t stream_id,
                                             void *data)
    void *nghttp2_session_get_stream_user_data(nghttp2_session *session, int32_t stream_id)
    int nghttp2_session_set_local_window_size(nghttp2_session *session, uint8_t flags,
                                              int32_t stream_id, int32_t window_size)
    int nghttp2_session_consume_connection(nghttp2_session *session, size_t size)
    int nghttp2_session_consume_stream(nghttp2_session *session, int32_t stream_id, size_t size)
    int nghttp2_session_resume_data(nghttp2_session *session, int32_t stream_id)
    int32_t nghttp2_session_get_last_proc_stream_id(nghttp2_session *session)
    int nghttp2_submit_settings(nghttp2_session *session, uint8_t flags,
                                const nghttp2_settings_entry *entries, size_t count)
    int nghttp2_submit_response(nghttp2_session *session, int32_t stream_id,
                                const nghttp2_nv *headers, size_t count,
                                const nghttp2_data_provider *provider)
    int nghttp2_submit_trailer(nghttp2_session *session, int32_t stream_id,
                               const nghttp2_nv *headers, size_t count)
    int nghttp2_submit_goaway(nghttp2_session *session, uint8_t flags, int32_t last_stream_id,
                              uint32_t error_code, const uint8_t *opaque, size_t length)
