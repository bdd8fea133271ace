/* Byte scans that frame.pyx leans on: 16 bytes a step where SSE2 is (every x86-64), else one. */
#ifndef CONGREVE_FRAME_SCAN_H
#define CONGREVE_FRAME_SCAN_H

#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* The first '"' or '\\' in [at, end), or end. */
static inline const uint8_t *scan_string_end(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i slash = _mm_set1_epi8('\\');
    while (end - at >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        int found = _mm_movemask_epi8(
            _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)));
        if (found)
            return at + __builtin_ctz(found);
        at += 16;
    }
#endif
    while (at < end && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* Whether any byte of [at, end) is above 0x7F: only then is UTF-8 more than ASCII. */
static inline int scan_high_bit(const uint8_t *at, const uint8_t *end) {
    uint8_t any = 0;
#if defined(__SSE2__)
    __m128i all = _mm_setzero_si128();
    while (end - at >= 16) {
        all = _mm_or_si128(all, _mm_loadu_si128((const __m128i *)at));
        at += 16;
    }
    if (_mm_movemask_epi8(all))
        return 1;
#endif
    while (at < end)
        any |= *at++;
    return any >> 7;
}

/* Whether [at, end) is well-formed UTF-8 (shortest forms, no surrogates, up to U+10FFFF). */
static inline int scan_utf8(const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        uint8_t first = *at++;
        uint8_t low = 0x80, high = 0xBF;
        int more;
        if (first < 0x80)
            continue;
        if (first >= 0xC2 && first <= 0xDF)
            more = 1;
        else if (first >= 0xE0 && first <= 0xEF) {
            more = 2;
            if (first == 0xE0)
                low = 0xA0;
            if (first == 0xED)
                high = 0x9F;
        } else if (first >= 0xF0 && first <= 0xF4) {
            more = 3;
            if (first == 0xF0)
                low = 0x90;
            if (first == 0xF4)
                high = 0x8F;
        } else
            return 0;
        if (end - at < more || *at < low || *at > high)
            return 0;
        for (at++; --more; at++)
            if ((*at & 0xC0) != 0x80)
                return 0;
    }
    return 1;
}

#endif
