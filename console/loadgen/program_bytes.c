/* Integers in network order, the clock, and the way out. */
#include "loadgen.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

uint32_t get32(const char *p)
{
    uint32_t value;
    memcpy(&value, p, 4);
    return be32toh(value);
}

uint64_t get64(const char *p)
{
    uint64_t value;
    memcpy(&value, p, 8);
    return be64toh(value);
}

void put16(char *p, uint32_t value)
{
    uint16_t big = htobe16((uint16_t)value);
    memcpy(p, &big, 2);
}

void put32(char *p, uint32_t value)
{
    value = htobe32(value);
    memcpy(p, &value, 4);
}

void put64(char *p, uint64_t value)
{
    value = htobe64(value);
    memcpy(p, &value, 8);
}

void die(const char *what, ...)
{
    va_list args;
    va_start(args, what);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, what, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}
