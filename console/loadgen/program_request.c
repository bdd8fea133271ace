/* Frames as the Java client 4.9.4 sends them, written once and patched for each message. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_CAPACITY = 2048, KEY_SIZE = 32, BORN_SIZE = 13, BATCH_FIXED = 22 };
enum { SOONEST_MS = 600000 }; /* of messages with times of their own */
enum { PREPARED = 4, COMMIT = 8 }; /* transaction types */
#define GROUP "loadgen"
#define KEY_TEXT "00000000000000000000000000000000"
#define BORN_TEXT "1700000000000"
#define DUE_TEXT "1700000000001"
#define OPAQUE_TEXT "1000000000"
#define SIGNATURE_TEXT "signature/of/28/characters/="

typedef struct {
    char *bytes;
    size_t size;
    bool binary;
    int fields;
    char content[HEAD_CAPACITY]; /* the values so far */
    size_t content_size;
} writer;

static void put(writer *w, const void *bytes, size_t size)
{
    if (w->size + size > HEAD_CAPACITY)
        die("a header of more than %d bytes: use a shorter topic", HEAD_CAPACITY);
    memcpy(w->bytes + w->size, bytes, size);
    w->size += size;
}

static void put_text(writer *w, const char *text)
{
    put(w, text, strlen(text));
}

/* JSON writes the separators of a property string as escapes. */
static void put_escaped(writer *w, const char *text)
{
    for (; *text; text++) {
        if (*text == 1)
            put_text(w, "\\u0001");
        else if (*text == 2)
            put_text(w, "\\u0002");
        else
            put(w, text, 1);
    }
}

static void field(writer *w, const char *name, const char *value)
{
    size_t length = strlen(value);
    if (w->content_size + length <= HEAD_CAPACITY && strcmp(name, "Signature") != 0) {
        memcpy(w->content + w->content_size, value, length);
        w->content_size += length;
    }
    if (w->binary) {
        char size[4];
        put16(size, (uint32_t)strlen(name));
        put(w, size, 2);
        put_text(w, name);
        put32(size, (uint32_t)strlen(value));
        put(w, size, 4);
        put_text(w, value);
        return;
    }
    put_text(w, w->fields++ ? ",\"" : "\"");
    put_text(w, name);
    put_text(w, "\":\"");
    put_escaped(w, value);
    put_text(w, "\"");
}

static void number(writer *w, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    field(w, name, text);
}

enum { BINARY_OPAQUE_AT = 8 + 5, BINARY_EXT_AT = 8 + 17 };

/* `opaque` as text has ten digits, so that it can be replaced in place. */
static void begin(writer *w, int code)
{
    w->size = 8;
    w->fields = 0;
    w->content_size = 0;
    if (w->binary) {
        char head[21] = {0};
        put16(head, (uint32_t)code);
        put16(head + 3, 401);
        put(w, head, sizeof head);
        return;
    }
    char text[64];
    snprintf(text, sizeof text, "{\"code\":%d,\"extFields\":{", code);
    put_text(w, text);
}

static size_t end(writer *w, size_t body_size)
{
    size_t opaque_at = BINARY_OPAQUE_AT;
    if (w->binary) {
        put32(w->bytes + BINARY_EXT_AT, (uint32_t)(w->size - BINARY_EXT_AT - 4));
    } else {
        put_text(w, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
        opaque_at = w->size;
        put_text(w, OPAQUE_TEXT ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}");
    }
    put32(w->bytes, (uint32_t)(w->size - 4 + body_size));
    put32(w->bytes + 4, (uint32_t)(w->size - 8));
    w->bytes[4] = w->binary ? 1 : 0;
    return opaque_at;
}

static size_t place_in(const char *bytes, size_t size, const char *text)
{
    const char *at = memmem(bytes, size, text, strlen(text));
    return at ? (size_t)(at - bytes) : 0;
}

static size_t place_of(const writer *w, const char *text)
{
    return place_in(w->bytes, w->size, text);
}

/* The fields of a signature; further fields follow in order of their names. */
static void account(writer *w, const settings *s)
{
    if (s->access_key) {
        field(w, "AccessKey", s->access_key);
        field(w, "Signature", SIGNATURE_TEXT);
    }
}

void target_name(const settings *s, int target, char *topic, size_t capacity, int *queue)
{
    if (s->topics == 1)
        snprintf(topic, capacity, "%s", s->topic);
    else
        snprintf(topic, capacity, "%s-%04d", s->topic, target % s->topics);
    *queue = target / s->topics;
}

static void build_head(frame_head *head, const settings *s, int target, size_t body_size)
{
    char topic[256];
    int queue;
    target_name(s, target, topic, sizeof topic, &queue);
    char buffer[HEAD_CAPACITY];
    writer w = {.bytes = buffer, .binary = s->binary};
    begin(&w, s->batch > 1 ? SEND_BATCH_MESSAGE : SEND_MESSAGE_V2);
    account(&w, s);
    field(&w, "a", GROUP);
    field(&w, "b", topic);
    field(&w, "c", "TBW102");
    field(&w, "d", "4");
    number(&w, "e", queue);
    number(&w, "f", s->transaction ? PREPARED : 0);
    field(&w, "g", BORN_TEXT);
    field(&w, "h", "0");
    if (s->batch == 1) {
        char properties[160];
        int size = snprintf(properties, sizeof properties,
                            "UNIQ_KEY\001" KEY_TEXT "\002WAIT\001true\002TAGS\001TagA");
        if (s->delay_level)
            snprintf(properties + size, sizeof properties - (size_t)size, "\002DELAY\001%d",
                     s->delay_level);
        if (s->deliver_within_s)
            snprintf(properties + size, sizeof properties - (size_t)size,
                     "\002TIMER_DELIVER_MS\001" DUE_TEXT);
        if (s->transaction)
            snprintf(properties + size, sizeof properties - (size_t)size,
                     "\002TRAN_MSG\001true\002PGROUP\001" GROUP);
        field(&w, "i", properties);
    }
    field(&w, "j", "0");
    field(&w, "k", "false");
    field(&w, "m", s->batch > 1 ? "true" : "false");
    head->opaque_at = end(&w, body_size);
    head->born_at = place_of(&w, BORN_TEXT);
    head->key_at = s->batch == 1 ? place_of(&w, KEY_TEXT) : 0;
    head->due_at = s->deliver_within_s ? place_of(&w, DUE_TEXT) : 0;
    if (s->access_key) {
        head->signature_at = place_of(&w, SIGNATURE_TEXT);
        head->content_size = w.content_size;
        head->content = malloc(w.content_size);
        memcpy(head->content, w.content, w.content_size);
        head->content_born_at = place_in(w.content, w.content_size, BORN_TEXT);
        head->content_key_at = place_in(w.content, w.content_size, KEY_TEXT);
    }
    head->size = w.size;
    head->bytes = malloc(w.size);
    memcpy(head->bytes, w.bytes, w.size);
}

/* Bytes that do not compress, the same in every run. */
static void fill(char *p, size_t size)
{
    uint32_t state = 2463534242u;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        p[i] = (char)(state >> 24);
    }
}

static void build_batch_body(send_frames *frames, const settings *s)
{
    static const char properties[] = "UNIQ_KEY\001" KEY_TEXT "\002WAIT\001true\002TAGS\001TagA";
    size_t property_size = sizeof properties - 1;
    size_t element = BATCH_FIXED + (size_t)s->size + property_size;
    frames->body_size = element * (size_t)s->batch;
    frames->body = calloc(1, frames->body_size);
    frames->keys = s->batch;
    frames->key_stride = element;
    frames->key_first = BATCH_FIXED + (size_t)s->size + strlen("UNIQ_KEY\001");
    for (int i = 0; i < s->batch; i++) {
        char *p = frames->body + element * (size_t)i;
        put32(p, (uint32_t)element);
        put32(p + 16, (uint32_t)s->size);
        fill(p + 20, (size_t)s->size);
        put16(p + 20 + s->size, (uint32_t)property_size);
        memcpy(p + BATCH_FIXED + s->size, properties, property_size);
    }
}

void send_frames_build(send_frames *frames, const settings *s)
{
    *frames = (send_frames){.targets = s->topics * s->queues, .binary = s->binary,
                            .deliver_within_ms = (uint64_t)s->deliver_within_s * 1000};
    if (s->batch > 1) {
        build_batch_body(frames, s);
    } else {
        frames->body_size = (size_t)s->size;
        frames->body = malloc(frames->body_size + 1);
        fill(frames->body, frames->body_size);
    }
    frames->heads = calloc((size_t)frames->targets, sizeof *frames->heads);
    for (int i = 0; i < frames->targets; i++) {
        build_head(&frames->heads[i], s, i, frames->body_size);
        if (frames->heads[i].size + frames->body_size > frames->largest)
            frames->largest = frames->heads[i].size + frames->body_size;
    }
    if (s->transaction && frames->largest < HEAD_CAPACITY)
        frames->largest = HEAD_CAPACITY; /* commits come from the same buffer */
}

static void put_digits(char *p, uint64_t value, int digits)
{
    for (int i = digits - 1; i >= 0; i--, value /= 10)
        p[i] = (char)('0' + value % 10);
}

/* As a client's id: an address, a process, and a count that never comes twice in a run. */
static void put_key(char *p, uint64_t value)
{
    static const char hex[] = "0123456789ABCDEF";
    static char prefix[16];
    if (!prefix[0]) {
        char text[17];
        snprintf(text, sizeof text, "7F000001%08X", (unsigned)getpid() ^ (unsigned)now_ns());
        memcpy(prefix, text, sizeof prefix);
    }
    memcpy(p, prefix, sizeof prefix);
    for (int i = KEY_SIZE - 1; i >= 16; i--, value >>= 4)
        p[i] = hex[value & 15];
}

/* Evenly spread, and in no order. */
static uint64_t scattered(uint64_t number)
{
    number *= 0x9E3779B97F4A7C15u;
    number ^= number >> 32;
    return number * 0xD6E8FEB86659FD93u >> 16;
}

size_t send_frames_write(const send_frames *frames, int target, uint32_t opaque, int64_t born_ms,
                         uint64_t *next_key, char *out)
{
    const frame_head *head = &frames->heads[target];
    memcpy(out, head->bytes, head->size);
    if (frames->binary)
        put32(out + head->opaque_at, opaque);
    else
        put_digits(out + head->opaque_at, opaque, 10);
    put_digits(out + head->born_at, (uint64_t)born_ms, BORN_SIZE);
    if (head->due_at)
        put_digits(out + head->due_at,
                   (uint64_t)born_ms + SOONEST_MS
                       + scattered(*next_key) % frames->deliver_within_ms,
                   BORN_SIZE);
    char *body = out + head->size;
    memcpy(body, frames->body, frames->body_size);
    if (head->key_at)
        put_key(out + head->key_at, (*next_key)++);
    for (int i = 0; i < frames->keys; i++)
        put_key(body + frames->key_first + frames->key_stride * (size_t)i, (*next_key)++);
    if (head->content) {
        memcpy(head->content + head->content_born_at, out + head->born_at, BORN_SIZE);
        if (head->key_at)
            memcpy(head->content + head->content_key_at, out + head->key_at, KEY_SIZE);
        sign(head->content, head->content_size, body, frames->body_size,
             out + head->signature_at);
    }
    return head->size + frames->body_size;
}

/* Ends a frame without a body; returns its size. */
static size_t sealed(writer *w, const settings *s, uint32_t opaque)
{
    size_t opaque_at = end(w, 0);
    if (s->access_key)
        sign(w->content, w->content_size, "", 0, w->bytes + place_of(w, SIGNATURE_TEXT));
    if (s->binary)
        put32(w->bytes + opaque_at, opaque);
    else
        put_digits(w->bytes + opaque_at, opaque, 10);
    return w->size;
}

/* Not one-way as the clients send it: the answer is the end of the transaction. */
size_t commit_frame_write(const settings *s, uint32_t opaque, int64_t half_offset,
                          int64_t physical_offset, char *out)
{
    writer w = {.bytes = out, .binary = s->binary};
    begin(&w, END_TRANSACTION);
    account(&w, s);
    number(&w, "commitLogOffset", physical_offset);
    number(&w, "commitOrRollback", COMMIT);
    field(&w, "fromTransactionCheck", "false");
    field(&w, "msgId", KEY_TEXT);
    field(&w, "producerGroup", GROUP);
    number(&w, "tranStateTableOffset", half_offset);
    return sealed(&w, s, opaque);
}

size_t pull_frame_largest(const settings *s)
{
    (void)s;
    return HEAD_CAPACITY;
}

size_t pull_frame_write(const settings *s, int target, uint32_t opaque, int64_t offset, char *out)
{
    char topic[256];
    int queue;
    target_name(s, target, topic, sizeof topic, &queue);
    writer w = {.bytes = out, .binary = s->binary};
    begin(&w, PULL_MESSAGE);
    account(&w, s);
    field(&w, "commitOffset", "0");
    field(&w, "consumerGroup", GROUP);
    field(&w, "expressionType", s->sql ? "SQL92" : "TAG");
    number(&w, "maxMsgNums", s->batch);
    number(&w, "queueId", queue);
    number(&w, "queueOffset", offset);
    field(&w, "subVersion", BORN_TEXT);
    field(&w, "subscription", s->sql ? s->sql : "*");
    field(&w, "suspendTimeoutMillis", "15000");
    field(&w, "sysFlag", "4"); /* a subscription, and no waiting where nothing is found */
    field(&w, "topic", topic);
    return sealed(&w, s, opaque);
}
