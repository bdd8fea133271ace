/* Three ways to the same number.
 *
 * Tables: slicing by 8, eight bytes a step.
 *
 * Folding, after Intel's "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ": 16 bytes
 * are moved k bits towards the end of the data by multiplying their halves with x^(k+32) and
 * x^(k-32) mod P; four accumulators run side by side over 64-byte blocks, are folded into one, and
 * a Barrett reduction leaves 32 bits. All constants are bit-reflected.
 *
 * Folding wide: the same with four 16-byte pieces in each of four accumulators, where the CPU
 * multiplies them at once.
 */
#include "checksum_crc32.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define CAN_FOLD 1
#include <immintrin.h>
#else
#define CAN_FOLD 0
#endif

#define POLYNOMIAL 0xEDB88320u
#define FOLD_MIN 16
#define FOLD_WIDE_MIN 256

static uint32_t tables[8][256];
static int folds, folds_wide;

static uint32_t step_byte(uint32_t crc, uint8_t byte)
{
    return tables[0][(crc ^ byte) & 0xFF] ^ (crc >> 8);
}

/* `crc` is inverted already in what follows; the public functions invert at both ends. */
static uint32_t run_tables(uint32_t crc, const uint8_t *data, size_t length)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; length >= 8; data += 8, length -= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = tables[7][low & 0xFF] ^ tables[6][(low >> 8) & 0xFF]
            ^ tables[5][(low >> 16) & 0xFF] ^ tables[4][low >> 24]
            ^ tables[3][high & 0xFF] ^ tables[2][(high >> 8) & 0xFF]
            ^ tables[1][(high >> 16) & 0xFF] ^ tables[0][high >> 24];
    }
#endif
    while (length--)
        crc = step_byte(crc, *data++);
    return crc;
}

#if CAN_FOLD
#define FOLDING __attribute__((target("pclmul,sse4.1")))

FOLDING static inline __m128i load(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *) at);
}

FOLDING static inline __m128i fold(__m128i x, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Over a distance of 16 bytes. */
FOLDING static inline __m128i fold_16(__m128i x, __m128i next)
{
    return fold(x, _mm_set_epi64x(0x00CCAA009E, 0x01751997D0), next);
}

/* 128 bits to 32. */
FOLDING static inline uint32_t reduce(__m128i x)
{
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163CD6124);          /* x^64 mod P */
    const __m128i barrett = _mm_set_epi64x(0x01F7011641, 0x01DB710641); /* mu, P */
    const __m128i by_96 = _mm_set_epi64x(0, 0x00CCAA009E);
    const __m128i low_32 = _mm_set_epi32(0, -1, 0, -1);
    __m128i t;

    t = _mm_clmulepi64_si128(x, by_96, 0x00);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), t);
    t = _mm_srli_si128(x, 4);
    x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low_32), by_64, 0x00), t);
    t = _mm_clmulepi64_si128(_mm_and_si128(x, low_32), barrett, 0x10);
    t = _mm_clmulepi64_si128(_mm_and_si128(t, low_32), barrett, 0x00);
    return (uint32_t) _mm_extract_epi32(_mm_xor_si128(x, t), 1);
}

/* `x` and the bytes after it; the last ones, fewer than 16, by tables. */
FOLDING static uint32_t finish_folding(__m128i x, const uint8_t *data, size_t length)
{
    for (; length >= 16; data += 16, length -= 16)
        x = fold_16(x, load(data));
    return run_tables(reduce(x), data, length);
}

FOLDING static inline __m128i join(__m128i x, __m128i x1, __m128i x2, __m128i x3)
{
    return fold_16(fold_16(fold_16(x, x1), x2), x3);
}

FOLDING static uint32_t run_folding(uint32_t crc, const uint8_t *data, size_t length)
{
    const __m128i by_64 = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4);
    __m128i x = _mm_xor_si128(load(data), _mm_cvtsi32_si128((int) crc));

    if (length < 64)
        return finish_folding(x, data + 16, length - 16);
    __m128i x1 = load(data + 16), x2 = load(data + 32), x3 = load(data + 48);
    for (data += 64, length -= 64; length >= 64; data += 64, length -= 64) {
        x = fold(x, by_64, load(data));
        x1 = fold(x1, by_64, load(data + 16));
        x2 = fold(x2, by_64, load(data + 32));
        x3 = fold(x3, by_64, load(data + 48));
    }
    return finish_folding(join(x, x1, x2, x3), data, length);
}

#define FOLDING_WIDE __attribute__((target("pclmul,sse4.1,vpclmulqdq,avx512f")))

FOLDING_WIDE static inline __m512i load_wide(const uint8_t *at)
{
    return _mm512_loadu_si512(at);
}

FOLDING_WIDE static inline __m512i all_four(__m128i x)
{
    return _mm512_broadcast_i32x4(x);
}

FOLDING_WIDE static inline __m512i fold_wide(__m512i x, __m512i by, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_xor_si512(_mm512_xor_si512(low, high), next);
}

FOLDING_WIDE static uint32_t run_folding_wide(uint32_t crc, const uint8_t *data, size_t length)
{
    const __m512i by_64 = all_four(_mm_set_epi64x(0x01C6E41596, 0x0154442BD4));
    const __m512i by_256 = all_four(_mm_set_epi64x(0x01322D1430, 0x011542778A));
    __m512i first = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int) crc));
    __m512i x = _mm512_xor_si512(load_wide(data), first), x1 = load_wide(data + 64);
    __m512i x2 = load_wide(data + 128), x3 = load_wide(data + 192);

    for (data += 256, length -= 256; length >= 256; data += 256, length -= 256) {
        x = fold_wide(x, by_256, load_wide(data));
        x1 = fold_wide(x1, by_256, load_wide(data + 64));
        x2 = fold_wide(x2, by_256, load_wide(data + 128));
        x3 = fold_wide(x3, by_256, load_wide(data + 192));
    }
    x = fold_wide(fold_wide(fold_wide(x, by_64, x1), by_64, x2), by_64, x3);
    for (; length >= 64; data += 64, length -= 64)
        x = fold_wide(x, by_64, load_wide(data));
    return finish_folding(
        join(_mm512_castsi512_si128(x), _mm512_extracti32x4_epi32(x, 1),
             _mm512_extracti32x4_epi32(x, 2), _mm512_extracti32x4_epi32(x, 3)),
        data, length);
}
#endif

void crc32_setup(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][i] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int i = 0; i < 256; i++)
            tables[slice][i] = step_byte(tables[slice - 1][i], 0);
#if CAN_FOLD
    folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    folds_wide = folds && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f");
#endif
}

uint32_t crc32_by_tables(uint32_t crc, const uint8_t *data, size_t length)
{
    return ~run_tables(~crc, data, length);
}

uint32_t crc32_by_folding(uint32_t crc, const uint8_t *data, size_t length)
{
#if CAN_FOLD
    if (folds && length >= FOLD_MIN)
        return ~run_folding(~crc, data, length);
#endif
    return crc32_by_tables(crc, data, length);
}

uint32_t crc32_best(uint32_t crc, const uint8_t *data, size_t length)
{
#if CAN_FOLD
    if (folds_wide && length >= FOLD_WIDE_MIN)
        return ~run_folding_wide(~crc, data, length);
#endif
    return crc32_by_folding(crc, data, length);
}
