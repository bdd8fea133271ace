/* Members of a group that pop and acknowledge each message by itself, as the Java client does: one
 * thread, many connections.
 *
 *     members PORT TOPIC GROUP MEMBERS INVISIBLE_MS consume WARM_UP COUNT SECONDS
 *     members ...                                   settle COUNT SEED       (0: in order)
 *     members ...                                   late COUNT
 *     members ...                                   pauses SECONDS BRIEF SEED
 *
 * It writes "begin" when what is measured begins, and its result as one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
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

enum { POP = 200050, ACK = 200051, SUCCESS = 0, POLLING_FULL = 209, POLLING_TIMEOUT = 210 };
enum { MOST = 32, EVENTS = 64, CAPACITY = 1 << 20, FRAME_MAX = 2048, STARTS = 64 };
enum { STALLED_MS = 30000 };
enum { POLL_MS = 1000, OF_POP = 1000 /* its opaque; that of an acknowledgement is its place */ };
enum { STORED_AT = 56 /* a record's store time */, KEY_SIZE = 32, KEYS = 1 << 24, LATE_MS = 60000 };
#define KEY_NAME "UNIQ_KEY\1"

typedef enum { CONSUME, TAKE, SETTLE, LATE, PAUSES } work;

typedef struct { /* what the handle of a message says */
    int64_t start, offset, popped_ms, invisible_ms;
    int32_t queue;
    int16_t revive_queue;
    char kind; /* '0': of the topic, else of the group's retry topic */
} message;

typedef struct {
    int fd;
    int acks_left;
    bool leaves;      /* pauses: it comes and goes */
    int pops_left;    /* until it goes */
    int64_t asked_ns; /* when it popped */
    uint32_t keys[MOST];
    char *in, *out;
    size_t in_used, out_used;
} member;

static struct {
    int port, members, epoll;
    const char *topic, *group;
    int64_t invisible_ms;
    work work;
    int64_t count, done, taken;
    double seconds;
    int64_t began_ns, now_ms;
    double began_cpu;
    message *messages; /* settle */
    int64_t settled_to;
    int asking;
    int64_t *due_ms; /* late: of each message, when it is due again */
    uint32_t late[LATE_MS]; /* late, pauses: messages by ms */
    uint64_t random;
    int64_t brief, brief_begun, gone; /* pauses: members that come and go */
    uint8_t *is_acknowledged;         /* by key */
    int64_t again;                    /* messages that came after that */
    int64_t longest_pop_ns;
} run;

static void die(const char *what, ...)
{
    va_list args;
    va_start(args, what);
    fputs("members: ", stderr);
    vfprintf(stderr, what, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t wall_ms(void) { return clock_ns(CLOCK_REALTIME) / 1000000; }

static double cpu_seconds(void) { return (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9; }

static uint32_t chance(uint32_t below) /* xorshift */
{
    run.random ^= run.random << 13;
    run.random ^= run.random >> 7;
    run.random ^= run.random << 17;
    return (uint32_t)(run.random >> 32) % below;
}

/* --- frames to send */

static char *put(char *at, const char *text) { return stpcpy(at, text); }

static char *put_number(char *at, int64_t value)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (count)
        *at++ = digits[--count];
    return at;
}

static char *begin_frame(member *m, int code, int opaque)
{
    if (m->out_used + FRAME_MAX > CAPACITY)
        die("too many requests wait to be sent");
    char *at = put_number(put(m->out + m->out_used + 8, "{\"code\":"), code);
    at = put_number(put(at, ",\"language\":\"JAVA\",\"version\":477,\"opaque\":"), opaque);
    at = put(at, ",\"flag\":0,\"serializeTypeCurrentRPC\":\"JSON\",\"extFields\":{");
    at = put(at, "\"consumerGroup\":\"");
    return put(put(at, run.group), "\",\"topic\":\"");
}

static void end_frame(member *m, char *end)
{
    char *begin = m->out + m->out_used;
    uint32_t size = (uint32_t)(end - begin - 8);
    uint32_t lengths[2] = {htonl(size + 4), htonl(size)};
    memcpy(begin, lengths, 8);
    m->out_used += size + 8;
}

static void write_pop(member *m)
{
    char *at = put(begin_frame(m, POP, OF_POP), run.topic);
    at = put_number(put(at, "\",\"queueId\":\"-1\",\"maxMsgNums\":\""), MOST);
    at = put_number(put(at, "\",\"invisibleTime\":\""), run.invisible_ms);
    at = put_number(put(at, "\",\"pollTime\":\""), POLL_MS);
    at = put_number(put(at, "\",\"bornTime\":\""), wall_ms());
    end_frame(m, put(at, "\",\"initMode\":\"0\",\"order\":\"false\"}}"));
    m->asked_ns = clock_ns(CLOCK_MONOTONIC);
}

static void write_ack(member *m, const message *of)
{
    char kind[] = {' ', of->kind, 0};
    char *at = begin_frame(m, ACK, m->acks_left);
    if (of->kind != '0')
        at = put(put(put(at, "%RETRY%"), run.group), "_");
    at = put_number(put(put(at, run.topic), "\",\"queueId\":\""), of->queue);
    at = put_number(put(at, "\",\"offset\":\""), of->offset);
    at = put_number(put(at, "\",\"extraInfo\":\""), of->start);
    at = put_number(put(at, " "), of->popped_ms);
    at = put_number(put(at, " "), of->invisible_ms);
    at = put(put_number(put(at, " "), of->revive_queue), kind);
    at = put_number(put(at, " broker-a "), of->queue);
    end_frame(m, put(put_number(put(at, " "), of->offset), "\"}}"));
    m->acks_left++;
}

static void send_all(member *m)
{
    for (size_t at = 0; at < m->out_used;) {
        ssize_t sent = send(m->fd, m->out + at, m->out_used - at, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            die("cannot send: %s", strerror(errno));
        at += sent > 0 ? (size_t)sent : 0;
    }
    m->out_used = 0;
}

/* --- answers */

static int64_t number_after(const char *header, size_t size, const char *name)
{
    const char *found = memmem(header, size, name, strlen(name));
    if (found == NULL)
        die("an answer without %s: %.*s", name, (int)size, header);
    return strtoll(found + strlen(name), NULL, 10);
}

static const char *text_after(const char *header, size_t size, const char *name)
{
    const char *found = memmem(header, size, name, strlen(name));
    if (found == NULL)
        die("an answer without %s: %.*s", name, (int)size, header);
    return found + strlen(name);
}

/* The messages of a pop's answer, of which there are MOST at most: their number. */
static int read_messages(const char *header, size_t size, message *found)
{
    struct { char kind; int32_t queue; int64_t start; } starts[STARTS];
    message like = {.popped_ms = number_after(header, size, "\"popTime\":\""),
                    .invisible_ms = number_after(header, size, "\"invisibleTime\":\""),
                    .revive_queue = (int16_t)number_after(header, size, "\"reviveQid\":\"")};
    int queues = 0, count = 0;
    char *end = (char *)text_after(header, size, "\"startOffsetInfo\":\"");
    for (; *end != '"' && queues < STARTS; queues++) {
        end += *end == ';';
        starts[queues].kind = *end;
        starts[queues].queue = (int32_t)strtol(end + 2, &end, 10);
        starts[queues].start = strtoll(end, &end, 10);
    }
    end = (char *)text_after(header, size, "\"msgOffsetInfo\":\"");
    while (*end != '"') {
        end += *end == ';';
        like.kind = *end;
        like.queue = (int32_t)strtol(end + 2, &end, 10);
        for (int i = 0; i < queues; i++)
            if (starts[i].kind == like.kind && starts[i].queue == like.queue)
                like.start = starts[i].start;
        while (*end != '"' && *end != ';') {
            like.offset = strtoll(end + 1, &end, 10);
            if (count == MOST)
                die("more than %d messages came: %.*s", MOST, (int)size, header);
            found[count++] = like;
        }
    }
    return count;
}

static void begin(void)
{
    run.began_ns = clock_ns(CLOCK_MONOTONIC);
    run.began_cpu = cpu_seconds();
    puts("begin");
    fflush(stdout);
}

static void note_late(int64_t ms)
{
    run.late[ms < 0 ? 0 : ms < LATE_MS ? ms : LATE_MS - 1]++;
}

static void pop(member *m)
{
    write_pop(m);
    send_all(m);
}

/* --- pauses: some members stay, and others come and go */

static void join(member *m, bool leaves)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)run.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = m};
    int on = 1;
    m->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (m->fd < 0 || connect(m->fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to port %d: %s", run.port, strerror(errno));
    setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_ctl(run.epoll, EPOLL_CTL_ADD, m->fd, &event);
    m->in_used = m->out_used = 0;
    m->acks_left = 0;
    m->leaves = leaves;
    m->pops_left = leaves ? 1 + (int)chance(2) : 0;
}

static void leave(member *m)
{
    close(m->fd);
    m->fd = -1;
    run.gone++;
}

/* The keys of the records in a pop's body, and how long they waited for a member that stays. */
static void read_records(member *m, const char *body, size_t size, const message *found, int count)
{
    for (int i = 0; i < count; i++) {
        uint32_t length;
        uint64_t stored;
        if (size < STORED_AT + 8)
            die("%d messages, but %d records", count, i);
        memcpy(&length, body, 4);
        memcpy(&stored, body + STORED_AT, 8);
        length = ntohl(length);
        if (length > size)
            die("a record of %u bytes, in %zu", length, size);
        const char *key = memmem(body, length, KEY_NAME, strlen(KEY_NAME));
        if (key == NULL)
            die("a record without its key");
        char text[9] = {0};
        memcpy(text, key + strlen(KEY_NAME) + KEY_SIZE - 8, 8);
        m->keys[i] = (uint32_t)strtoul(text, NULL, 16) % KEYS;
        run.again += run.is_acknowledged[m->keys[i]];
        if (found[i].kind == '0' && !m->leaves)
            note_late(run.now_ms - (int64_t)be64toh(stored));
        body += length;
        size -= length;
    }
}

/* Its connection ends while it has messages, before answers to acknowledgements, or in a pop. */
static void go(member *m, const message *found, int count)
{
    switch (chance(4)) {
    case 0:
        break;
    case 1:
        for (int i = 0; i < count; i++)
            write_ack(m, &found[i]);
        send_all(m);
        break;
    case 2:
        pop(m);
        break;
    default:
        if (count == 0)
            break;
        for (int i = 0; i < count; i++)
            write_ack(m, &found[i]);
        send_all(m);
        return; /* it goes when these are answered */
    }
    leave(m);
}

static void take_pop(member *m, const message *found, int count, const char *body, size_t size)
{
    int64_t waited_ns = clock_ns(CLOCK_MONOTONIC) - m->asked_ns;
    read_records(m, body, size, found, count);
    if (!m->leaves && waited_ns > run.longest_pop_ns && count)
        run.longest_pop_ns = waited_ns;
    if (m->leaves && --m->pops_left <= 0) {
        go(m, found, count);
        return;
    }
    for (int i = 0; i < count; i++)
        write_ack(m, &found[i]);
    if (count == 0)
        write_pop(m);
    send_all(m);
}

/* --- what comes after an answer */

static void settle_more(member *m)
{
    for (int i = 0; i < MOST && run.settled_to < run.count; i++)
        write_ack(m, &run.messages[run.settled_to++]);
    send_all(m);
}

static void acknowledged(member *m, const char *header, size_t size)
{
    int64_t code = number_after(header, size, "\"code\":");
    if (code != SUCCESS)
        die("acknowledgement: %.*s", (int)size, header);
    m->acks_left--;
    run.done++;
    if (run.work == PAUSES)
        run.is_acknowledged[m->keys[number_after(header, size, "\"opaque\":")]] = 1;
    if (run.work == CONSUME && run.done == 0)
        begin();
    if (m->acks_left)
        return;
    if (run.work == SETTLE)
        settle_more(m);
    else if (m->leaves && m->pops_left <= 0)
        leave(m);
    else
        pop(m);
}

static void popped(member *m, const char *header, size_t size, const char *body, size_t body_size)
{
    message found[MOST];
    int64_t code = number_after(header, size, "\"code\":");
    int count = 0;
    if (code == SUCCESS)
        count = read_messages(header, size, found);
    else if (code != POLLING_FULL && code != POLLING_TIMEOUT)
        die("pop: %.*s", (int)size, header);
    switch (run.work) {
    case PAUSES:
        take_pop(m, found, count, body, body_size);
        return;
    case TAKE:
        for (int i = 0; i < count && run.taken < run.count; i++)
            run.messages[run.taken++] = found[i];
        if (run.taken < run.count)
            pop(m);
        else
            run.asking--;
        return;
    case LATE:
        for (int i = 0; i < count; i++)
            if (found[i].kind != '0')
                note_late(run.now_ms
                          - run.due_ms[run.done < run.taken ? run.done++ : run.taken - 1]);
            else if (run.taken < run.count)
                run.due_ms[run.taken++] = found[i].popped_ms + run.invisible_ms;
        pop(m);
        return;
    default:
        for (int i = 0; i < count; i++)
            write_ack(m, &found[i]);
        if (count == 0)
            write_pop(m);
        send_all(m);
    }
}

static void receive(member *m)
{
    ssize_t got = recv(m->fd, m->in + m->in_used, CAPACITY - m->in_used, MSG_DONTWAIT);
    size_t at = 0;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        die("the broker has closed a connection");
    m->in_used += (size_t)got;
    run.now_ms = wall_ms();
    while (m->fd >= 0 && m->in_used - at >= 8) {
        uint32_t lengths[2];
        memcpy(lengths, m->in + at, 8);
        size_t size = ntohl(lengths[0]), header = ntohl(lengths[1]) & 0xFFFFFF;
        if (size > CAPACITY - 4 || header + 4 > size)
            die("a frame of %zu bytes with a header of %zu came", size, header);
        if (m->in_used - at < size + 4)
            break;
        const char *begins = m->in + at + 8;
        if (m->acks_left)
            acknowledged(m, begins, header);
        else
            popped(m, begins, header, begins + header, size - 4 - header);
        at += size + 4;
    }
    if (m->fd >= 0) {
        memmove(m->in, m->in + at, m->in_used - at);
        m->in_used -= at;
    }
}

/* --- the works */

static bool is_over(void)
{
    double passed = run.began_ns ? (double)(clock_ns(CLOCK_MONOTONIC) - run.began_ns) / 1e9 : 0;
    switch (run.work) {
    case CONSUME:
        return run.done >= run.count || (run.began_ns && passed > run.seconds);
    case TAKE:
        return run.asking == 0;
    case SETTLE:
        return run.done >= run.count;
    case LATE:
        return run.taken >= run.count && run.done >= run.count * 99 / 100;
    default:
        return passed > run.seconds;
    }
}

/* Members that are to come by now, evenly over the first 0.8 of the time. */
static void bring(member *members, int all)
{
    double share = (double)(clock_ns(CLOCK_MONOTONIC) - run.began_ns) / 1e9 / (0.8 * run.seconds);
    int64_t due = share < 1 ? (int64_t)(share * (double)run.brief) : run.brief;
    for (int i = run.members; i < all && run.brief_begun < due; i++)
        if (members[i].fd < 0) {
            join(&members[i], true);
            pop(&members[i]);
            run.brief_begun++;
        }
}

static void serve(member *members, int all)
{
    struct epoll_event events[EVENTS];
    int64_t heard_ms = wall_ms();
    while (!is_over()) {
        int ready = epoll_wait(run.epoll, events, EVENTS, run.work == PAUSES ? 1 : 1000);
        if (ready > 0)
            heard_ms = wall_ms();
        else if (wall_ms() - heard_ms > STALLED_MS)
            die("no answer for %d s", STALLED_MS / 1000);
        for (int i = 0; i < ready; i++)
            receive(events[i].data.ptr);
        if (run.work == PAUSES)
            bring(members, all);
    }
}

static void shuffle(void)
{
    for (int64_t i = run.count - 1; i > 0; i--) {
        int64_t other = (int64_t)chance((uint32_t)i + 1);
        message kept = run.messages[i];
        run.messages[i] = run.messages[other];
        run.messages[other] = kept;
    }
}

static void settle(member *members, int all)
{
    run.messages = malloc((size_t)run.count * sizeof *run.messages);
    run.asking = all;
    serve(members, all);
    if (run.random)
        shuffle();
    run.work = SETTLE;
    begin();
    for (int i = 0; i < all; i++)
        settle_more(&members[i]);
    serve(members, all);
}

static int64_t late_at(double share)
{
    uint64_t all = 0, passed = 0;
    for (int ms = 0; ms < LATE_MS; ms++)
        all += run.late[ms];
    for (int ms = 0; ms < LATE_MS; ms++) {
        passed += run.late[ms];
        if (all && (double)passed >= (double)all * share)
            return ms;
    }
    return -1;
}

static void print(void)
{
    double seconds = (double)(clock_ns(CLOCK_MONOTONIC) - run.began_ns) / 1e9;
    printf("{\"messages\":%lld,\"seconds\":%.6f,\"cpu\":%.6f,", (long long)run.done, seconds,
           cpu_seconds() - run.began_cpu);
    printf("\"late\":[%lld,%lld,%lld,%lld],", (long long)late_at(0.5), (long long)late_at(0.99),
           (long long)late_at(0.999), (long long)late_at(1));
    printf("\"longestPop\":%.3f,\"came\":%lld,\"gone\":%lld,\"again\":%lld}\n",
           (double)run.longest_pop_ns / 1e6, (long long)run.brief_begun, (long long)run.gone,
           (long long)run.again);
}

static void parse(int argc, char **argv)
{
    if (argc < 8)
        die("give PORT TOPIC GROUP MEMBERS INVISIBLE_MS, and consume, settle, late or pauses");
    run.port = atoi(argv[1]);
    run.topic = argv[2];
    run.group = argv[3];
    run.members = atoi(argv[4]);
    run.invisible_ms = atoll(argv[5]);
    const char *name = argv[6];
    if (strcmp(name, "consume") == 0 && argc == 10) {
        run.work = CONSUME;
        run.done = -atoll(argv[7]);
        run.count = atoll(argv[8]);
        run.seconds = atof(argv[9]);
    } else if (strcmp(name, "settle") == 0 && argc == 9) {
        run.work = TAKE;
        run.count = atoll(argv[7]);
        run.random = strtoull(argv[8], NULL, 10) * 0x9E3779B97F4A7C15u;
    } else if (strcmp(name, "late") == 0 && argc == 8) {
        run.work = LATE;
        run.count = atoll(argv[7]);
        run.due_ms = malloc((size_t)run.count * sizeof *run.due_ms);
    } else if (strcmp(name, "pauses") == 0 && argc == 10) {
        run.work = PAUSES;
        run.seconds = atof(argv[7]);
        run.brief = atoll(argv[8]);
        run.random = strtoull(argv[9], NULL, 10) * 0x9E3779B97F4A7C15u;
        run.is_acknowledged = calloc(KEYS, 1);
    } else {
        die("%s: this work, or the number of its words, is unknown", name);
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    int all = run.members + (run.work == PAUSES ? run.members * 4 : 0);
    member *members = calloc((size_t)all, sizeof *members);
    run.epoll = epoll_create1(0);
    for (int i = 0; i < all; i++) {
        members[i].in = malloc(CAPACITY);
        members[i].out = malloc(CAPACITY);
        members[i].fd = -1;
        if (i < run.members)
            join(&members[i], false);
    }
    if (run.work == LATE || run.work == PAUSES)
        begin();
    for (int i = 0; i < run.members; i++)
        pop(&members[i]);
    if (run.work == TAKE)
        settle(members, all);
    else
        serve(members, all);
    print();
    return 0;
}
