/* The client: connections, requests in flight, and their results.
 *
 * Closed loop: a slot asks again when its answer comes, and latency counts from the send. Open
 * loop (a rate): request i is due at begin + i / rate whatever the server does. Its connection is
 * i modulo their number, it waits there while all slots are busy, and latency counts from the time
 * when it was due.
 */
#define _GNU_SOURCE
#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { READ_CAPACITY = 1 << 20, FRAME_MAX = 16 << 20, EVENTS = 64 };
enum { FIRST_OPAQUE = 1000000000, OPAQUES = 1000000000 };
static const int64_t DRAIN_NS = 10000000000LL;

typedef struct {
    uint32_t opaque; /* 0: nothing in flight */
    int64_t begun_ns; /* sent (closed loop), or due (open loop) */
    int target;
    int64_t offset; /* pull: of the next request */
    bool committing; /* send: its half message is answered, its commit is not */
} slot;

typedef struct {
    int fd;
    void *tls; /* a session; NULL: not encrypted */
    bool wants_write;
    slot *slots;
    int *idle; /* open loop: the slots without a request */
    int idles;
    int64_t asked;  /* open loop: requests of this connection that were sent */
    uint32_t turns; /* requests so far: their opaque is turn * inflight + slot */
    int target;     /* send: of the next request */
    char *in, *out;
    size_t in_head, in_tail, in_capacity, out_head, out_tail, out_capacity;
    layout_hint hint;
} connection;

typedef struct {
    const settings *s;
    results *r;
    send_frames frames;
    connection *connections;
    int epoll, timer;
    int64_t now, begin_ns, end_ns;
    int64_t first_due_ns, dues; /* open loop: when the first request was due, and how many were */
    int64_t born_ms;
    uint64_t next_key;
    int64_t left; /* requests that may still be sent */
    uint64_t outstanding;
    bool measuring, stopping;
    struct rusage usage;
} client;

static double cpu_seconds(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

static int connect_to(const settings *s)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    if (inet_pton(AF_INET, s->host, &address.sin_addr) != 1)
        die("%s is not an IPv4 address", s->host);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to %s:%d: %s", s->host, s->port, strerror(errno));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void open_connection(client *c, int index)
{
    const settings *s = c->s;
    connection *n = &c->connections[index];
    size_t largest = s->mode == MODE_PULL ? pull_frame_largest(s) : c->frames.largest;
    n->fd = connect_to(s);
    if (s->tls) {
        n->tls = tls_connect(n->fd);
        fcntl(n->fd, F_SETFL, O_NONBLOCK);
    }
    n->out_capacity = largest * (size_t)(s->inflight + 1);
    n->out = malloc(n->out_capacity);
    n->in_capacity = READ_CAPACITY;
    n->in = malloc(n->in_capacity);
    n->slots = calloc((size_t)s->inflight, sizeof *n->slots);
    n->idle = malloc((size_t)s->inflight * sizeof *n->idle);
    for (n->idles = 0; n->idles < s->inflight; n->idles++)
        n->idle[n->idles] = n->idles;
    int targets = s->topics * s->queues;
    n->target = (int)((int64_t)targets * index / s->connections);
    for (int i = 0; i < s->inflight; i++)
        n->slots[i].target = (index * s->inflight + i) % targets;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = n};
    epoll_ctl(c->epoll, EPOLL_CTL_ADD, n->fd, &event);
}

static void want_write(client *c, connection *n, bool wanted)
{
    if (n->wants_write == wanted)
        return;
    n->wants_write = wanted;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = n};
    epoll_ctl(c->epoll, EPOLL_CTL_MOD, n->fd, &event);
}

static void flush(client *c, connection *n)
{
    while (n->out_head < n->out_tail) {
        size_t pending = n->out_tail - n->out_head;
        const char *from = n->out + n->out_head;
        ssize_t sent = n->tls ? tls_send(n->tls, from, pending)
                              : send(n->fd, from, pending, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            die("cannot send: %s", strerror(errno));
        n->out_head += (size_t)sent;
    }
    if (n->out_head == n->out_tail)
        n->out_head = n->out_tail = 0;
    want_write(c, n, n->out_tail > 0);
}

static void make_room(client *c, connection *n)
{
    const settings *s = c->s;
    size_t largest = s->mode == MODE_PULL ? pull_frame_largest(s) : c->frames.largest;
    if (n->out_tail + largest <= n->out_capacity)
        return;
    memmove(n->out, n->out + n->out_head, n->out_tail - n->out_head);
    n->out_tail -= n->out_head;
    n->out_head = 0;
}

static uint32_t next_opaque(client *c, connection *n, int index)
{
    uint32_t inflight = (uint32_t)c->s->inflight;
    return FIRST_OPAQUE + (n->turns++ * inflight + (uint32_t)index) % OPAQUES;
}

/* Write the next request of a slot into the connection's buffer. */
static void ask(client *c, connection *n, int index, int64_t begun_ns)
{
    const settings *s = c->s;
    if (c->stopping || c->left == 0)
        return;
    c->left--;
    slot *at = &n->slots[index];
    make_room(c, n);
    at->opaque = next_opaque(c, n, index);
    at->begun_ns = begun_ns;
    char *out = n->out + n->out_tail;
    if (s->mode == MODE_PULL) {
        n->out_tail += pull_frame_write(s, at->target, at->opaque, at->offset, out);
    } else {
        n->out_tail += send_frames_write(&c->frames, n->target, at->opaque, c->born_ms,
                                         &c->next_key, out);
        n->target = n->target + 1 == c->frames.targets ? 0 : n->target + 1;
    }
    c->outstanding++;
}

/* --- open loop */

static int64_t due_ns(const client *c, int64_t request)
{
    return c->first_due_ns + (int64_t)((double)request * 1e9 / c->s->rate);
}

/* Send the requests of a connection that are due, as far as it has idle slots. */
static void ask_due(client *c, connection *n)
{
    int64_t index = n - c->connections;
    while (n->idles > 0 && c->left > 0 && !c->stopping) {
        int64_t request = n->asked * c->s->connections + index;
        if (request >= c->dues)
            return;
        n->asked++;
        ask(c, n, n->idle[--n->idles], due_ns(c, request));
    }
}

/* Send what has become due at all connections; then wake up when the next request is due. */
static void pace(client *c)
{
    c->now = now_ns();
    int64_t past = c->now - c->first_due_ns;
    int64_t dues = past < 0 ? 0 : (int64_t)((double)past * c->s->rate / 1e9) + 1;
    while (c->dues < dues) {
        connection *n = &c->connections[c->dues++ % c->s->connections];
        ask_due(c, n);
        flush(c, n);
    }
    int64_t next = due_ns(c, c->dues);
    struct itimerspec at = {
        .it_value = {.tv_sec = next / 1000000000, .tv_nsec = next % 1000000000}};
    timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void begin_pace(client *c)
{
    c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->timer, &event);
    c->first_due_ns = c->now;
    c->left = (int64_t)(c->s->rate * (c->s->warmup_s + c->s->duration_s));
    pace(c);
}

/* --- answers */

/* Whether a request is part of what is measured. In an open loop its time decides, not the
 * answer's: the slowest answers come after the end. */
static bool is_measured(const client *c, const slot *at)
{
    return c->s->rate > 0 ? at->begun_ns >= c->begin_ns : c->measuring;
}

static void count(client *c, const slot *at, int messages, size_t bytes)
{
    c->r->all_requests++;
    c->r->all_messages += (uint64_t)messages;
    if (is_measured(c, at)) {
        c->r->requests++;
        c->r->messages += (uint64_t)messages;
        c->r->bytes += bytes;
    }
}

/* Write the commit of the half message that `r` answers; the slot stays busy. */
static bool commit(client *c, connection *n, int index, const response *r)
{
    slot *at = &n->slots[index];
    int64_t half_offset, physical_offset;
    if (!response_field(r, "queueOffset", &half_offset) ||
        !response_physical_offset(r, &physical_offset)) {
        c->r->broken++;
        return false;
    }
    make_room(c, n);
    at->opaque = next_opaque(c, n, index);
    at->committing = true;
    n->out_tail += commit_frame_write(c->s, at->opaque, half_offset, physical_offset,
                                      n->out + n->out_tail);
    return true;
}

/* At the end of a queue, the slot continues with the queue that no other slot has. */
static void next_queue(client *c, slot *at)
{
    int targets = c->s->topics * c->s->queues;
    at->target = (at->target + c->s->connections * c->s->inflight) % targets;
    at->offset = 0;
}

static void take_pull(client *c, slot *at, const response *r)
{
    int64_t next = 0, max = 0;
    if (r->code == PULL_NOT_FOUND || r->code == PULL_OFFSET_MOVED) {
        int64_t before = at->offset;
        c->r->empty++;
        next_queue(c, at);
        if (r->code == PULL_OFFSET_MOVED && before == 0)
            response_field(r, "nextBeginOffset", &at->offset);
        return;
    }
    if (r->code != SUCCESS && r->code != PULL_RETRY_IMMEDIATELY) {
        c->r->errors[(unsigned)r->code < CODES ? r->code : CODES - 1]++;
        return;
    }
    int messages = records_walk(r->body, r->body_size, at->offset);
    if (messages < 0 || !response_field(r, "nextBeginOffset", &next) ||
        !response_field(r, "maxOffset", &max) || next != at->offset + messages) {
        c->r->broken++;
        next_queue(c, at);
        return;
    }
    count(c, at, messages, r->body_size);
    at->offset = next;
    if (next >= max)
        next_queue(c, at);
}

static void take(client *c, connection *n, const char *frame, size_t size)
{
    response r;
    if (!response_parse(frame, size, &n->hint, &r))
        die("a header that cannot be read came");
    int index = (int)((r.opaque - FIRST_OPAQUE) % (uint32_t)c->s->inflight);
    slot *at = &n->slots[index];
    if (at->opaque != r.opaque) {
        c->r->broken++;
        return;
    }
    at->opaque = 0;
    if (c->s->transaction && !at->committing && r.code == SUCCESS && commit(c, n, index, &r))
        return;
    at->committing = false;
    c->outstanding--;
    if (is_measured(c, at))
        histogram_record(&c->r->latency, (uint64_t)(c->now - at->begun_ns));
    if (c->s->mode == MODE_PULL)
        take_pull(c, at, &r);
    else if (r.code == SUCCESS)
        count(c, at, c->s->batch, (size_t)c->s->batch * (size_t)c->s->size);
    else
        c->r->errors[(unsigned)r.code < CODES ? r.code : CODES - 1]++;
    if (c->s->rate > 0) {
        n->idle[n->idles++] = index;
        ask_due(c, n);
    } else {
        ask(c, n, index, c->now);
    }
}

static void receive(client *c, connection *n)
{
    char *to = n->in + n->in_tail;
    size_t size = n->in_capacity - n->in_tail;
    ssize_t got = n->tls ? tls_receive(n->tls, to, size) : recv(n->fd, to, size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        die("the server closed a connection%s%s", got ? ": " : "", got ? strerror(errno) : "");
    n->in_tail += (size_t)got;
    c->now = now_ns();
    size_t wanted = 0;
    while (n->in_tail - n->in_head >= 4) {
        size_t size = (size_t)get32(n->in + n->in_head) + 4;
        if (size < 8 || size > FRAME_MAX)
            die("a frame of %zu bytes came", size);
        if (n->in_tail - n->in_head < size) {
            wanted = size;
            break;
        }
        take(c, n, n->in + n->in_head, size);
        n->in_head += size;
    }
    memmove(n->in, n->in + n->in_head, n->in_tail - n->in_head);
    n->in_tail -= n->in_head;
    n->in_head = 0;
    if (wanted > n->in_capacity) {
        n->in_capacity = wanted;
        n->in = realloc(n->in, wanted);
        if (n->in == NULL)
            die("no memory for a frame of %zu bytes", wanted);
    }
    flush(c, n);
}

/* Begin and end of what is measured, as the clock says. */
static void turn_phase(client *c)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    c->born_ms = wall.tv_sec * 1000LL + wall.tv_nsec / 1000000;
    c->now = now_ns();
    if (!c->measuring && !c->stopping && c->now >= c->begin_ns) {
        c->measuring = true;
        if (c->s->rate == 0)
            c->begin_ns = c->now;
        getrusage(RUSAGE_SELF, &c->usage);
    }
    bool idle = c->outstanding == 0 && c->left == 0;
    bool done = c->s->count ? idle : c->now >= c->end_ns;
    if (c->s->rate > 0)
        done = idle || c->now >= c->end_ns + DRAIN_NS;
    if (c->measuring && done) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        c->r->seconds = (double)(c->now - c->begin_ns) / 1e9;
        c->r->cpu_seconds = cpu_seconds(&usage) - cpu_seconds(&c->usage);
        c->measuring = false;
        c->stopping = true;
        if (c->s->rate == 0)
            c->end_ns = c->now;
    }
}

static void start(client *c)
{
    c->now = now_ns();
    c->begin_ns = c->now + (int64_t)(c->s->warmup_s * 1e9);
    c->end_ns = c->begin_ns + (int64_t)(c->s->duration_s * 1e9);
    turn_phase(c);
    if (c->s->rate > 0) {
        begin_pace(c);
        return;
    }
    for (int i = 0; i < c->s->connections; i++) {
        for (int k = 0; k < c->s->inflight; k++)
            ask(c, &c->connections[i], k, c->now);
        flush(c, &c->connections[i]);
    }
}

int client_run(const settings *s, results *r)
{
    client c = {.s = s, .r = r, .left = s->count ? s->count : INT64_MAX};
    c.epoll = epoll_create1(0);
    if (s->tls)
        tls_begin();
    if (s->mode == MODE_SEND)
        send_frames_build(&c.frames, s);
    c.connections = calloc((size_t)s->connections, sizeof *c.connections);
    for (int i = 0; i < s->connections; i++)
        open_connection(&c, i);
    start(&c);
    struct epoll_event events[EVENTS];
    while (!c.stopping || (c.outstanding && c.now < c.end_ns + DRAIN_NS)) {
        int ready = epoll_wait(c.epoll, events, EVENTS, 100);
        turn_phase(&c);
        if (s->rate > 0 && !c.stopping)
            pace(&c);
        for (int i = 0; i < ready; i++) {
            connection *n = events[i].data.ptr;
            if (n == NULL)
                continue; /* the timer: pace() has set it again */
            if (events[i].events & EPOLLOUT)
                flush(&c, n);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                receive(&c, n);
        }
    }
    r->broken += c.outstanding; /* never answered */
    if (s->rate > 0)
        r->broken += (uint64_t)c.left; /* never sent, because too many were in flight */
    for (int i = 0; i < s->connections; i++)
        close(c.connections[i].fd);
    return 0;
}
