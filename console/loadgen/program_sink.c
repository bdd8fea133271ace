/* Answers every send and pull with success at once, to measure the generator's own limit. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CAPACITY = 1 << 20, EVENTS = 64, RECORD_FIXED = 91 };

typedef struct {
    int fd;
    char *in, *out;
    size_t in_tail, out_head, out_tail;
    size_t skipped; /* bytes still to come of a request that is too large for `in` */
    bool waits;     /* for room to write; it does not read meanwhile */
} peer;

typedef struct {
    char *body; /* records of a pull */
    size_t size;
    size_t record;
    int count;
} stored;

static const char SEND_ANSWER[] =
    "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"TRACE_ON\":\"true\",\"MSG_REGION\":"
    "\"DefaultRegion\",\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueOffset\":\"0\"},"
    "\"flag\":1,\"language\":\"JAVA\",\"opaque\":%010u,\"serializeTypeCurrentRPC\":\"JSON\","
    "\"version\":401}";
static const char PULL_ANSWER[] =
    "{\"code\":0,\"extFields\":{\"suggestWhichBrokerId\":\"0\",\"nextBeginOffset\":\"%lld\","
    "\"minOffset\":\"0\",\"maxOffset\":\"9000000000000000000\"},"
    "\"flag\":1,\"language\":\"JAVA\",\"opaque\":%010u,\"serializeTypeCurrentRPC\":\"JSON\","
    "\"version\":401}";

static void build_stored(stored *st, const settings *s)
{
    st->count = s->batch > 1 ? s->batch : 32;
    st->record = RECORD_FIXED + (size_t)s->size;
    st->size = st->record * (size_t)st->count;
    st->body = calloc(1, st->size);
    for (int i = 0; i < st->count; i++) {
        put32(st->body + st->record * (size_t)i, (uint32_t)st->record);
        put32(st->body + st->record * (size_t)i + 4, 0xDAA320A7u);
    }
}

static size_t answer(const stored *st, const response *request, char *out)
{
    int header;
    size_t body = 0;
    if (request->binary) {
        memset(out + 8, 0, 21);
        put32(out + 8 + 5, request->opaque);
        put32(out + 8 + 9, 1);
        header = 21;
    } else if (request->code == PULL_MESSAGE) {
        int64_t offset = 0;
        response_field(request, "queueOffset", &offset);
        header = sprintf(out + 8, PULL_ANSWER, (long long)(offset + st->count), request->opaque);
        body = st->size;
        memcpy(out + 8 + header, st->body, body);
        for (int i = 0; i < st->count; i++)
            put64(out + 8 + header + st->record * (size_t)i + 20, (uint64_t)(offset + i));
    } else {
        header = sprintf(out + 8, SEND_ANSWER, request->opaque);
    }
    put32(out, (uint32_t)(4 + (size_t)header + body));
    put32(out + 4, (uint32_t)header);
    out[4] = request->binary;
    return 8 + (size_t)header + body;
}

/* Writes answers while the peer takes them. */
static void flush(peer *p)
{
    while (p->out_head < p->out_tail) {
        ssize_t sent = send(p->fd, p->out + p->out_head, p->out_tail - p->out_head,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return;
        p->out_head += (size_t)sent;
    }
    p->out_head = p->out_tail = 0;
}

/* Answers the requests that are read while there is room; false if one of them is damaged. */
static bool answer_all(const stored *st, peer *p)
{
    size_t head = 0;
    while (p->in_tail - head >= 8) {
        size_t size = (size_t)get32(p->in + head) + 4;
        if (size > CAPACITY) {
            p->skipped = size - (p->in_tail - head);
            head = p->in_tail;
            break;
        }
        if (p->in_tail - head < size)
            break;
        response request;
        layout_hint hint = {0, 0};
        if (!response_parse(p->in + head, size, &hint, &request))
            return false;
        if (CAPACITY - p->out_tail < st->size + 1024)
            flush(p);
        if (CAPACITY - p->out_tail < st->size + 1024)
            break;
        p->out_tail += answer(st, &request, p->out + p->out_tail);
        head += size;
    }
    memmove(p->in, p->in + head, p->in_tail - head);
    p->in_tail -= head;
    flush(p);
    return true;
}

/* False if the peer has disconnected or sent what is no request. */
static bool serve(const stored *st, peer *p)
{
    if (p->waits) {
        flush(p);
    } else {
        size_t room = CAPACITY - p->in_tail;
        if (p->skipped > 0 && p->skipped < room)
            room = p->skipped;
        ssize_t got = recv(p->fd, p->in + p->in_tail, room, 0);
        if (got <= 0)
            return false;
        if (p->skipped > 0) {
            p->skipped -= (size_t)got;
            return true;
        }
        p->in_tail += (size_t)got;
    }
    return answer_all(st, p);
}

static void expect(int epoll, peer *p)
{
    bool waits = p->out_tail > 0;
    if (waits == p->waits)
        return;
    p->waits = waits;
    struct epoll_event event = {.events = waits ? EPOLLOUT : EPOLLIN, .data.ptr = p};
    epoll_ctl(epoll, EPOLL_CTL_MOD, p->fd, &event);
}

static void welcome(int epoll, int listener)
{
    int on = 1, fd = accept(listener, NULL, NULL);
    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peer *p = calloc(1, sizeof *p);
    *p = (peer){.fd = fd, .in = malloc(CAPACITY), .out = malloc(CAPACITY)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static int listen_on(const settings *s)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    socklen_t size = sizeof address;
    inet_pton(AF_INET, s->host, &address.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 128) != 0)
        die("cannot listen on %s:%d: %s", s->host, s->port, strerror(errno));
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int sink_run(const settings *s)
{
    stored st;
    build_stored(&st, s);
    int listener = listen_on(s);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            peer *p = events[i].data.ptr;
            if (!p) {
                welcome(epoll, listener);
            } else if (!serve(&st, p)) {
                close(p->fd);
                free(p->in);
                free(p->out);
                free(p);
            } else {
                expect(epoll, p);
            }
        }
    }
}
