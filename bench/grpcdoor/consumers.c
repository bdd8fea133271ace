/* Consumers of RocketMQ 5's gRPC on nghttp2, which receive and acknowledge each message by itself:
 * one thread, many connections, each with its Telemetry open.
 *
 *     consumers PORT CONNECTIONS WARM_UP_S SECONDS COUNT SETTINGS RECEIVE ACK
 *
 * The last three are files: a TelemetryCommand, a ReceiveMessageRequest, and an AckMessageRequest
 * without entries. It ends when it has acknowledged COUNT messages, too. It writes "begin" when
 * what is measured begins, and its result as JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SERVICE "/apache.rocketmq.v2.MessagingService/"
#define HEADER(name, value) \
    {(uint8_t *)name, (uint8_t *)value, sizeof(name) - 1, strlen(value), NGHTTP2_NV_FLAG_NONE}

enum { EVENTS = 64, WINDOW = 16 << 20, FRAME = 5, REQUEST_MAX = 4096, OUT_MAX = 1 << 20 };
enum { OK = 20000, NOT_FOUND = 40404, STALLED_MS = 20000 };
enum { STATUS = 1, MESSAGE = 2 };             /* fields of answers */
enum { SYSTEM = 3, ID = 3, HANDLE = 12 };     /* of Message and its SystemProperties */
enum { ENTRY = 3, ENTRY_ID = 1, ENTRY_HANDLE = 2 }; /* of AckMessageRequest */

typedef enum { TELEMETRY, RECEIVE, ACK } kind;

typedef struct {
    const uint8_t *data;
    size_t size;
} bytes;

typedef struct {
    kind kind;
    uint8_t request[REQUEST_MAX];
    size_t size, sent;
    uint8_t *answer;
    size_t used, room;
} call;

typedef struct {
    int fd;
    char id[32];
    nghttp2_session *session;
    int acks_left;
    bool receiving;
} consumer;

static struct {
    uint8_t files[3][REQUEST_MAX];
    size_t sizes[3];
    char authority[32];
    int64_t count, acknowledged;
} run;

static void die(const char *what, ...)
{
    va_list args;
    va_start(args, what);
    fputs("consumers: ", stderr);
    vfprintf(stderr, what, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- protobuf */

static uint64_t read_varint(bytes *from)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && from->size; shift += 7) {
        uint8_t byte = *from->data++;
        from->size--;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    die("a number does not end");
    return 0;
}

/* The next field; its value is a number, or bytes. */
static bool next_field(bytes *from, uint64_t *number, uint64_t *value, bytes *found)
{
    if (!from->size)
        return false;
    uint64_t tag = read_varint(from);
    *number = tag >> 3;
    found->size = 0;
    if ((tag & 7) == 0) {
        *value = read_varint(from);
        return true;
    }
    if ((tag & 7) != 2)
        die("a field of type %d came", (int)(tag & 7));
    uint64_t size = read_varint(from);
    if (size > from->size)
        die("a field of %llu bytes in %zu came", (unsigned long long)size, from->size);
    *found = (bytes){from->data, size};
    from->data += size;
    from->size -= size;
    return true;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    for (; value > 127; value >>= 7)
        *at++ = (uint8_t)(value | 128);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_bytes(uint8_t *at, int field, bytes from)
{
    *at++ = (uint8_t)(field << 3 | 2);
    at = put_varint(at, from.size);
    memcpy(at, from.data, from.size);
    return at + from.size;
}

/* The code of a status; ends the program if the call has failed. */
static uint64_t code_of(bytes status, const char *name)
{
    uint64_t number, value = 0, code = 0;
    bytes found, why = {0};
    while (next_field(&status, &number, &value, &found)) {
        if (number == 1)
            code = value;
        if (number == 2)
            why = found;
    }
    if (code != OK && code != NOT_FOUND)
        die("%s: %d %.*s", name, (int)code, (int)why.size, (const char *)why.data);
    return code;
}

/* --- calls */

static void put_length(uint8_t *frame, size_t size)
{
    uint32_t big = htonl((uint32_t)(size - FRAME));
    frame[0] = 0;
    memcpy(frame + 1, &big, 4);
}

static ssize_t read_request(nghttp2_session *session, int32_t stream, uint8_t *out, size_t size,
                            uint32_t *flags, nghttp2_data_source *source, void *user)
{
    call *c = source->ptr;
    size_t count = c->size - c->sent < size ? c->size - c->sent : size;
    (void)session, (void)stream, (void)user;
    if (count == 0 && c->kind == TELEMETRY)
        return NGHTTP2_ERR_DEFERRED; /* it stays open */
    memcpy(out, c->request + c->sent, count);
    c->sent += count;
    if (c->sent == c->size && c->kind != TELEMETRY)
        *flags = NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)count;
}

static call *new_call(kind of)
{
    call *c = malloc(sizeof *c);
    c->kind = of;
    c->sent = c->used = c->room = 0;
    c->answer = NULL;
    memcpy(c->request + FRAME, run.files[of], run.sizes[of]);
    c->size = FRAME + run.sizes[of];
    return c;
}

static void begin_call(consumer *m, call *c)
{
    static const char *const paths[] = {SERVICE "Telemetry", SERVICE "ReceiveMessage",
                                        SERVICE "AckMessage"};
    const nghttp2_nv headers[] = {
        HEADER(":method", "POST"), HEADER(":scheme", "http"), HEADER(":path", paths[c->kind]),
        HEADER(":authority", run.authority), HEADER("te", "trailers"),
        HEADER("content-type", "application/grpc"), HEADER("x-mq-client-id", m->id),
        HEADER("x-mq-language", "JAVA"), HEADER("x-mq-client-version", "5.0.8"),
        HEADER("x-mq-protocol", "v2"), HEADER("grpc-timeout", "20S"),
    };
    const size_t all = sizeof headers / sizeof *headers;
    nghttp2_data_provider provider = {.source.ptr = c, .read_callback = read_request};
    put_length(c->request, c->size);
    if (nghttp2_submit_request(m->session, NULL, headers,
                               c->kind == TELEMETRY ? all - 1 : all, &provider, c) < 0)
        die("a call cannot begin");
}

static void receive_more(consumer *m)
{
    m->receiving = true;
    begin_call(m, new_call(RECEIVE));
}

static void acknowledge(consumer *m, bytes message)
{
    uint64_t number, value;
    bytes found, system = {0}, id = {0}, handle = {0};
    while (next_field(&message, &number, &value, &found))
        if (number == SYSTEM)
            system = found;
    while (next_field(&system, &number, &value, &found)) {
        if (number == ID)
            id = found;
        if (number == HANDLE)
            handle = found;
    }
    call *c = new_call(ACK);
    uint8_t entry[REQUEST_MAX / 2];
    if (id.size + handle.size + 16 > sizeof entry || handle.size == 0)
        die("a handle of %zu bytes came", handle.size);
    uint8_t *end = put_bytes(put_bytes(entry, ENTRY_ID, id), ENTRY_HANDLE, handle);
    end = put_bytes(c->request + c->size, ENTRY, (bytes){entry, (size_t)(end - entry)});
    c->size = (size_t)(end - c->request);
    begin_call(m, c);
    m->acks_left++;
}

/* What a call of Receive has brought: messages between a status and a time. */
static void take_received(consumer *m, bytes answer)
{
    m->receiving = false;
    while (answer.size >= FRAME) {
        uint32_t size;
        uint64_t number, value;
        bytes found;
        memcpy(&size, answer.data + 1, 4);
        size = ntohl(size);
        if (size > answer.size - FRAME)
            die("a message of %u bytes in %zu came", size, answer.size);
        bytes one = {answer.data + FRAME, size};
        while (next_field(&one, &number, &value, &found)) {
            if (number == MESSAGE)
                acknowledge(m, found);
            else if (number == STATUS)
                code_of(found, "receive");
        }
        answer.data += FRAME + size;
        answer.size -= FRAME + size;
    }
}

static void take_acknowledged(consumer *m, bytes answer)
{
    uint64_t number, value;
    bytes found;
    if (answer.size < FRAME)
        die("an acknowledgement was not answered");
    answer.data += FRAME;
    answer.size -= FRAME;
    if (!next_field(&answer, &number, &value, &found) || number != STATUS
        || code_of(found, "acknowledgement") != OK)
        die("an acknowledgement was not answered with a status");
    m->acks_left--;
    run.acknowledged++;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t size, void *user)
{
    call *c = nghttp2_session_get_stream_user_data(session, stream);
    consumer *m = user;
    (void)flags;
    if (c->kind == TELEMETRY) { /* the settings were taken */
        if (!m->receiving && !m->acks_left)
            receive_more(m);
        return 0;
    }
    if (c->used + size > c->room) {
        c->room = 2 * (c->used + size);
        c->answer = realloc(c->answer, c->room);
    }
    memcpy(c->answer + c->used, data, size);
    c->used += size;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    call *c = nghttp2_session_get_stream_user_data(session, stream);
    consumer *m = user;
    if (error || c->kind == TELEMETRY)
        die("call %d ended with error %u", (int)c->kind, error);
    if (c->kind == RECEIVE)
        take_received(m, (bytes){c->answer, c->used});
    else
        take_acknowledged(m, (bytes){c->answer, c->used});
    free(c->answer);
    free(c);
    if (!m->receiving && !m->acks_left)
        receive_more(m);
    return 0;
}

/* --- connections */

static void send_all(consumer *m)
{
    static uint8_t out[OUT_MAX];
    const uint8_t *chunk;
    size_t used = 0;
    ssize_t got;
    while ((got = nghttp2_session_mem_send(m->session, &chunk)) > 0) {
        if (used + (size_t)got > sizeof out)
            die("too many requests at once");
        memcpy(out + used, chunk, (size_t)got);
        used += (size_t)got;
    }
    for (size_t at = 0; at < used;) {
        got = send(m->fd, out + at, used - at, MSG_NOSIGNAL);
        if (got < 0 && errno != EINTR)
            die("cannot send: %s", strerror(errno));
        at += got > 0 ? (size_t)got : 0;
    }
}

static void receive(consumer *m)
{
    static uint8_t in[1 << 18];
    ssize_t got = recv(m->fd, in, sizeof in, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        die("the server has closed a connection");
    if (nghttp2_session_mem_recv(m->session, in, (size_t)got) != got)
        die("the server does not speak HTTP/2");
    send_all(m);
}

static void join(consumer *m, int port, int number, int poll, nghttp2_session_callbacks *callbacks)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = m};
    int on = 1;
    m->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (m->fd < 0 || connect(m->fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to port %d: %s", port, strerror(errno));
    setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_ctl(poll, EPOLL_CTL_ADD, m->fd, &event);
    snprintf(m->id, sizeof m->id, "host@%d@0@bench", number);
    nghttp2_session_client_new(&m->session, callbacks, m);
    nghttp2_submit_settings(m->session, NGHTTP2_FLAG_NONE, &window, 1);
    nghttp2_session_set_local_window_size(m->session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    begin_call(m, new_call(TELEMETRY));
    send_all(m);
}

static void serve(int poll, double seconds)
{
    struct epoll_event events[EVENTS];
    double until = seconds_of(CLOCK_MONOTONIC) + seconds;
    while (run.acknowledged < run.count && seconds_of(CLOCK_MONOTONIC) < until) {
        int ready = epoll_wait(poll, events, EVENTS, STALLED_MS);
        if (ready == 0)
            die("no answer for %d s", STALLED_MS / 1000);
        for (int i = 0; i < ready; i++)
            receive(events[i].data.ptr);
    }
}

int main(int count, char **words)
{
    if (count != 9)
        die("give PORT CONNECTIONS WARM_UP_S SECONDS COUNT SETTINGS RECEIVE ACK");
    int port = atoi(words[1]), connections = atoi(words[2]), poll = epoll_create1(0);
    nghttp2_session_callbacks *callbacks;
    consumer *consumers = calloc((size_t)connections, sizeof *consumers);
    for (int i = 0; i < 3; i++) {
        FILE *file = fopen(words[6 + i], "rb");
        if (file == NULL)
            die("%s: %s", words[6 + i], strerror(errno));
        run.sizes[i] = fread(run.files[i], 1, REQUEST_MAX / 4, file);
        fclose(file);
    }
    run.count = atoll(words[5]);
    snprintf(run.authority, sizeof run.authority, "127.0.0.1:%d", port);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    for (int i = 0; i < connections; i++)
        join(&consumers[i], port, i, poll, callbacks);
    serve(poll, atof(words[3]));
    int64_t before = run.acknowledged;
    double began = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    puts("begin");
    fflush(stdout);
    serve(poll, atof(words[4]));
    printf("{\"messages\":%lld,\"seconds\":%.6f,\"cpu\":%.6f}\n",
           (long long)(run.acknowledged - before), seconds_of(CLOCK_MONOTONIC) - began,
           seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    return 0;
}
