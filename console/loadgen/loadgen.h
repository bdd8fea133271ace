/* A load generator that speaks RocketMQ's remoting protocol: what its files share.
 *
 * One thread, epoll. Closed loop: every connection keeps a fixed number of requests in flight and
 * answers each response with the next request. Open loop: requests are due at fixed times. Integers
 * of the wire are big endian.
 */
#ifndef LOADGEN_H
#define LOADGEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PULL_MESSAGE = 11, END_TRANSACTION = 37, SEND_MESSAGE_V2 = 310, SEND_BATCH_MESSAGE = 320 };
enum { SUCCESS = 0, PULL_NOT_FOUND = 19, PULL_RETRY_IMMEDIATELY = 20, PULL_OFFSET_MOVED = 21 };
enum { CODES = 512 };

typedef enum { MODE_SEND, MODE_PULL, MODE_SINK } run_mode;

typedef struct {
    run_mode mode;
    const char *host;
    int port;
    const char *topic; /* with more than one topic, -0000 and so on are added */
    int topics, queues;
    int connections, inflight;
    int size;   /* body bytes of a message */
    int batch;  /* messages in one request (send), or wanted by one request (pull) */
    bool binary;
    bool tls; /* connections are encrypted; the server's certificate is not checked */
    int delay_level; /* send: of each message; 0: none */
    int64_t deliver_within_s; /* send: each at a time of its own, so far apart; 0: now */
    const char *access_key, *secret_key; /* requests are signed; NULL: they are not */
    const char *sql;  /* pull: a filter; NULL: none */
    bool transaction; /* send: half messages, each committed when it is answered */
    double warmup_s, duration_s;
    int64_t count; /* requests to send in all; 0: run for duration_s */
    double rate;   /* open loop: requests a second; 0: closed loop */
} settings;

/* --- program_histogram.c: log-linear buckets as in HdrHistogram, 1/1024 relative error --- */
enum { HISTOGRAM_SUB = 1024, HISTOGRAM_BUCKETS = 34 * HISTOGRAM_SUB };
typedef struct {
    uint64_t counts[HISTOGRAM_BUCKETS];
} histogram;
void histogram_record(histogram *h, uint64_t value);
uint64_t histogram_lowest(size_t bucket); /* the smallest value that falls into it */

/* --- program_sign.c --- */
enum { SIGNATURE_SIZE = 28 };
void sign_begin(const char *secret);
void sign(const char *content, size_t size, const char *body, size_t body_size, char *signature);

/* --- program_request.c: frames to send --- */
typedef struct {
    char *bytes;
    size_t size;
    size_t opaque_at, born_at, key_at; /* key_at 0: the keys are in the body */
    size_t due_at;                     /* 0: to be delivered at once */
    char *content;                     /* what is signed before the body; NULL: nothing is */
    size_t content_size, content_born_at, content_key_at, signature_at;
} frame_head;
typedef struct {
    frame_head *heads; /* one a topic and queue; whole frames but for the body */
    int targets;
    char *body;
    size_t body_size;
    size_t key_first, key_stride; /* unique keys in a batch body */
    int keys;
    size_t largest; /* bytes of the largest frame */
    bool binary;
    uint64_t deliver_within_ms;
} send_frames;
void send_frames_build(send_frames *frames, const settings *s);
size_t send_frames_write(const send_frames *frames, int target, uint32_t opaque, int64_t born_ms,
                         uint64_t *next_key, char *out);
size_t pull_frame_write(const settings *s, int target, uint32_t opaque, int64_t offset, char *out);
size_t commit_frame_write(const settings *s, uint32_t opaque, int64_t half_offset,
                          int64_t physical_offset, char *out);
size_t pull_frame_largest(const settings *s);
void target_name(const settings *s, int target, char *topic, size_t capacity, int *queue);

/* --- program_response.c: frames that came in --- */
typedef struct {
    int code;
    uint32_t opaque;
    const char *header;
    size_t header_size;
    bool binary;
    const char *body;
    size_t body_size;
} response;
typedef struct { /* where the last header had its fields: the next one of that server does too */
    size_t code_at, opaque_from_end;
} layout_hint;
bool response_parse(const char *frame, size_t size, layout_hint *hint, response *out);
bool response_field(const response *r, const char *name, int64_t *value);
bool response_physical_offset(const response *r, int64_t *value); /* out of a send's msgId */
/* Walk the records of a pull's body: their number, or -1 where one is damaged or out of order. */
int records_walk(const char *body, size_t size, int64_t first_offset);

/* --- program_tls.c: a send or receive that has to wait is -1 with EAGAIN --- */
void tls_begin(void);
void *tls_connect(int fd); /* a session, over a blocking socket */
ssize_t tls_send(void *session, const char *data, size_t size);
ssize_t tls_receive(void *session, char *data, size_t size);

/* --- program_client.c and program_sink.c --- */
typedef struct {
    uint64_t requests, messages, bytes; /* answered with success while measured */
    uint64_t all_requests, all_messages; /* with warm-up and the drain at the end */
    uint64_t empty; /* pulls that found nothing */
    uint64_t errors[CODES];
    uint64_t broken; /* wrong records, answers without a request, requests never answered or sent */
    double seconds, cpu_seconds;
    histogram latency; /* ns */
} results;
int client_run(const settings *s, results *r);
int sink_run(const settings *s);

/* --- program_main.c --- */
int loadgen_main(int argc, char **argv);

/* --- program_bytes.c --- */
int64_t now_ns(void);
uint32_t get32(const char *p);
uint64_t get64(const char *p);
void put16(char *p, uint32_t value);
void put32(char *p, uint32_t value);
void put64(char *p, uint64_t value);
void die(const char *what, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
