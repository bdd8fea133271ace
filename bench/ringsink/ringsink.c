/* Answers every send with success at once, over io_uring: multishot accept and receive, provided
   buffers, and the sends of a turn in one submission. Beside `loadgen --mode sink`, which does the
   same with epoll, it shows what io_uring would save. It takes binary or JSON headers, and requests
   that are whole in one receive, as those of one in flight are. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { ENTRIES = 4096, BUFFERS = 2048, BUFFER_SIZE = 2048, GROUP = 1, FDS = 65536, ANSWER = 512 };
enum { ACCEPTED = 1, RECEIVED = 2, SENT = 3 };

static const char TEXT[] =
    "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"TRACE_ON\":\"true\",\"MSG_REGION\":"
    "\"DefaultRegion\",\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueOffset\":\"0\"},"
    "\"flag\":1,\"language\":\"JAVA\",\"opaque\":%010u,\"serializeTypeCurrentRPC\":\"JSON\","
    "\"version\":401}";

static struct io_uring ring;
static struct io_uring_buf_ring *buffers;
static char *memory;
static char answers[FDS][ANSWER];

static struct io_uring_sqe *next_entry(void)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    while (!entry) {
        io_uring_submit(&ring);
        entry = io_uring_get_sqe(&ring);
    }
    return entry;
}

static void tag(struct io_uring_sqe *entry, int kind, int fd)
{
    io_uring_sqe_set_data64(entry, (unsigned long long)kind << 32 | (unsigned)fd);
}

static void receive(int fd)
{
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_recv_multishot(entry, fd, NULL, 0, 0);
    entry->flags |= IOSQE_BUFFER_SELECT;
    entry->buf_group = GROUP;
    tag(entry, RECEIVED, fd);
}

static void accept_more(int listener)
{
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_multishot_accept(entry, listener, NULL, NULL, 0);
    tag(entry, ACCEPTED, listener);
}

static unsigned opaque_of(const char *frame, size_t size)
{
    const char *found = memmem(frame, size, "\"opaque\":", 9);
    return found ? (unsigned)strtoul(found + 9, NULL, 10) : 0;
}

static void answer(int fd, const char *frame, size_t size)
{
    char *out = answers[fd];
    int header = sprintf(out + 8, TEXT, opaque_of(frame, size));
    unsigned total = htonl((unsigned)header + 4), length = htonl((unsigned)header);
    memcpy(out, &total, 4);
    memcpy(out + 4, &length, 4);
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_send(entry, fd, out, (size_t)header + 8, MSG_NOSIGNAL);
    entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
    tag(entry, SENT, fd);
}

static void give_back(int number)
{
    io_uring_buf_ring_add(buffers, memory + (size_t)number * BUFFER_SIZE, BUFFER_SIZE,
                          (unsigned short)number, io_uring_buf_ring_mask(BUFFERS), 0);
    io_uring_buf_ring_advance(buffers, 1);
}

static void received(int fd, const struct io_uring_cqe *done)
{
    if (done->flags & IORING_CQE_F_BUFFER) {
        int number = (int)(done->flags >> IORING_CQE_BUFFER_SHIFT);
        if (done->res > 0)
            answer(fd, memory + (size_t)number * BUFFER_SIZE, (size_t)done->res);
        give_back(number);
    }
    if (done->res == 0 || (done->res < 0 && done->res != -ENOBUFS))
        close(fd);
    else if (!(done->flags & IORING_CQE_F_MORE))
        receive(fd);
}

int main(void)
{
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7F000001)};
    socklen_t size = sizeof address;
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER |
                                              IORING_SETUP_DEFER_TASKRUN};
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024) ||
        io_uring_queue_init_params(ENTRIES, &ring, &params))
        return 1;
    memory = malloc((size_t)BUFFERS * BUFFER_SIZE);
    if (posix_memalign((void **)&buffers, 4096, BUFFERS * sizeof(struct io_uring_buf)) || !memory)
        return 1;
    struct io_uring_buf_reg group = {
        .ring_addr = (unsigned long)buffers, .ring_entries = BUFFERS, .bgid = GROUP};
    if (io_uring_register_buf_ring(&ring, &group, 0))
        return 1;
    io_uring_buf_ring_init(buffers);
    for (int i = 0; i < BUFFERS; i++)
        give_back(i);
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    accept_more(listener);
    for (;;) {
        struct io_uring_cqe *done;
        unsigned head, count = 0;
        io_uring_submit_and_wait(&ring, 1);
        io_uring_for_each_cqe(&ring, head, done)
        {
            int fd = (int)(done->user_data & 0xFFFFFFFF), kind = (int)(done->user_data >> 32);
            count++;
            if (kind == RECEIVED) {
                received(fd, done);
            } else if (kind == ACCEPTED) {
                if (done->res >= 0) {
                    setsockopt(done->res, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    receive(done->res);
                }
                if (!(done->flags & IORING_CQE_F_MORE))
                    accept_more(listener);
            }
        }
        io_uring_cq_advance(&ring, count);
    }
}
