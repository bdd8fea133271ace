/* What a response says: its code, the request that it answers, and the records of a pull. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <stdlib.h>
#include <string.h>

#define CODE_NAME "\"code\":"
#define OPAQUE_NAME "\"opaque\":"

static bool digits(const char *p, const char *end, int64_t *value)
{
    while (p < end && (*p == ' ' || *p == '"' || *p == ':'))
        p++;
    bool negative = p < end && *p == '-';
    p += negative;
    if (p >= end || *p < '0' || *p > '9')
        return false;
    int64_t v = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        v = v * 10 + (*p - '0');
    *value = negative ? -v : v;
    return true;
}

static bool parse_json(layout_hint *hint, response *out)
{
    const char *header = out->header, *end = header + out->header_size;
    const size_t code_size = sizeof CODE_NAME - 1, opaque_size = sizeof OPAQUE_NAME - 1;
    const char *code = header + hint->code_at;
    if (hint->code_at + code_size > out->header_size || memcmp(code, CODE_NAME, code_size) != 0) {
        code = memmem(header, out->header_size, CODE_NAME, code_size);
        if (!code)
            return false;
        hint->code_at = (size_t)(code - header);
    }
    const char *opaque = end - hint->opaque_from_end;
    if (hint->opaque_from_end < opaque_size || hint->opaque_from_end > out->header_size ||
        memcmp(opaque, OPAQUE_NAME, opaque_size) != 0) {
        opaque = memmem(header, out->header_size, OPAQUE_NAME, opaque_size);
        if (!opaque)
            return false;
        hint->opaque_from_end = (size_t)(end - opaque);
    }
    int64_t code_value, opaque_value;
    if (!digits(code + code_size, end, &code_value) ||
        !digits(opaque + opaque_size, end, &opaque_value))
        return false;
    out->code = (int)code_value;
    out->opaque = (uint32_t)opaque_value;
    return true;
}

bool response_parse(const char *frame, size_t size, layout_hint *hint, response *out)
{
    uint32_t mark = get32(frame + 4);
    out->binary = mark >> 24 == 1;
    out->header = frame + 8;
    out->header_size = mark & 0xFFFFFF;
    if (mark >> 24 > 1 || out->header_size > size - 8)
        return false;
    out->body = out->header + out->header_size;
    out->body_size = size - 8 - out->header_size;
    if (!out->binary)
        return parse_json(hint, out);
    if (out->header_size < 21)
        return false;
    out->code = (int16_t)(get32(out->header) >> 16);
    out->opaque = get32(out->header + 5);
    return true;
}

static bool binary_field(const response *r, const char *name, int64_t *value)
{
    const char *p = r->header + 13, *end = r->header + r->header_size;
    size_t name_size = strlen(name);
    p += 4 + get32(p) + 4; /* the remark, then the size of what follows */
    while (p + 2 <= end) {
        size_t key_size = get32(p - 2) & 0xFFFF;
        const char *key = p + 2;
        if (key + key_size + 4 > end)
            return false;
        size_t value_size = get32(key + key_size);
        const char *text = key + key_size + 4;
        if (text + value_size > end)
            return false;
        if (key_size == name_size && memcmp(key, name, name_size) == 0)
            return digits(text, text + value_size, value);
        p = text + value_size;
    }
    return false;
}

bool response_field(const response *r, const char *name, int64_t *value)
{
    if (r->binary)
        return binary_field(r, name, value);
    const char *at = memmem(r->header, r->header_size, name, strlen(name));
    if (!at)
        return false;
    return digits(at + strlen(name), r->header + r->header_size, value);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The id ends with the physical offset: 16 of its 32 digits (IPv4). */
bool response_physical_offset(const response *r, int64_t *value)
{
    const char *end = r->header + r->header_size;
    const char *at = memmem(r->header, r->header_size, "msgId", 5);
    if (!at)
        return false;
    for (at += 5; at < end && hex_digit(*at) < 0;) /* its length, or `": "` */
        at++;
    if (at + 32 > end)
        return false;
    *value = 0;
    for (int i = 16; i < 32; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0)
            return false;
        *value = *value << 4 | digit;
    }
    return true;
}

int records_walk(const char *body, size_t size, int64_t first_offset)
{
    int count = 0;
    size_t at = 0;
    while (at < size) {
        if (size - at < 91)
            return -1;
        size_t record = get32(body + at);
        if (record < 91 || record > size - at || get32(body + at + 4) != 0xDAA320A7u ||
            (int64_t)get64(body + at + 20) != first_offset + count)
            return -1;
        at += record;
        count++;
    }
    return count;
}
