/* A server on nghttp2 that reads calls and answers each with the same message: what HTTP/2 and its
 * socket calls cost alone. One thread.
 *
 *     nothing PORT ANSWER     (a file with the message, without its five bytes in front)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 256
#define HEADER(name, value) \
    {(uint8_t *) name, (uint8_t *) value, sizeof(name) - 1, sizeof(value) - 1, NGHTTP2_NV_FLAG_NONE}

static uint8_t answer[4096];
static size_t answer_length;

typedef struct {
    int fd;
    nghttp2_session *session;
} Connection;

static ssize_t read_answer(nghttp2_session *session, int32_t stream, uint8_t *out, size_t size,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    nghttp2_nv trailer = HEADER("grpc-status", "0");
    (void) size, (void) source, (void) user;
    memcpy(out, answer, answer_length);
    *flags = NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    nghttp2_submit_trailer(session, stream, &trailer, 1);
    return (ssize_t) answer_length;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    nghttp2_nv headers[] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.read_callback = read_answer};
    (void) user;
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS)
        && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        nghttp2_submit_response(session, frame->hd.stream_id, headers, 2, &provider);
    return 0;
}

/* Returns whether the connection goes on. */
static int serve(Connection *connection)
{
    static uint8_t input[1 << 16], output[1 << 18];
    const uint8_t *chunk;
    size_t used = 0;
    ssize_t got = recv(connection->fd, input, sizeof input, 0);
    if (got < 0)
        return errno == EAGAIN;
    if (got == 0 || nghttp2_session_mem_recv(connection->session, input, (size_t) got) != got)
        return 0;
    while ((got = nghttp2_session_mem_send(connection->session, &chunk)) > 0) {
        if (used + (size_t) got > sizeof output)
            return 0;
        memcpy(output + used, chunk, (size_t) got);
        used += (size_t) got;
    }
    return used == 0 || send(connection->fd, output, used, MSG_NOSIGNAL) == (ssize_t) used;
}

static void accept_one(int listener, int poll, nghttp2_session_callbacks *callbacks)
{
    nghttp2_settings_entry streams = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1000};
    Connection *connection = calloc(1, sizeof *connection);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    int on = 1;
    connection->fd = accept(listener, NULL, NULL);
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    nghttp2_session_server_new(&connection->session, callbacks, connection);
    nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, &streams, 1);
    epoll_ctl(poll, EPOLL_CTL_ADD, connection->fd, &event);
}

int main(int count, char **arguments)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN};
    nghttp2_session_callbacks *callbacks;
    int listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0), on = 1, found, i;
    FILE *file;
    if (count != 3 || !(file = fopen(arguments[2], "rb")))
        return 2;
    answer_length = 5 + fread(answer + 5, 1, sizeof answer - 5, file);
    answer[3] = (uint8_t) ((answer_length - 5) >> 8);
    answer[4] = (uint8_t) (answer_length - 5);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    address.sin_port = htons((uint16_t) atoi(arguments[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *) &address, sizeof address) || listen(listener, 1024))
        return 1;
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event); /* its data is NULL */
    for (;;) {
        found = epoll_wait(poll, events, EVENTS, -1);
        for (i = 0; i < found; i++) {
            Connection *connection = events[i].data.ptr;
            if (!connection)
                accept_one(listener, poll, callbacks);
            else if (!serve(connection)) {
                nghttp2_session_del(connection->session);
                close(connection->fd);
                free(connection);
            }
        }
    }
}
