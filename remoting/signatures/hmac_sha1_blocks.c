/* Four rounds of SHA-1 an instruction, for one text or for two texts in turns. */
#include "hmac_sha1_blocks.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

#define BLOCK 64
#define HASHING __attribute__((target("sha,ssse3,sse4.1")))
/* The compiler must know the number of texts, so that all of this stays in registers. */
#define INLINE HASHING static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 20")

int sha1_has_instructions(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1))
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

/* `group` is that of four rounds, 0 to 19; the instruction takes the function as a constant. */
INLINE __m128i four_rounds(__m128i abcd, __m128i e, int group)
{
    if (group < 5)
        return _mm_sha1rnds4_epu32(abcd, e, 0);
    if (group < 10)
        return _mm_sha1rnds4_epu32(abcd, e, 1);
    if (group < 15)
        return _mm_sha1rnds4_epu32(abcd, e, 2);
    return _mm_sha1rnds4_epu32(abcd, e, 3);
}

/* The four words of the message for a group; `words` has those of the four groups before it. */
INLINE __m128i next_words(const uint8_t *text, const __m128i *words, int group)
{
    const __m128i reversed = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
    if (group < 4)
        return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(text + 16 * group)), reversed);
    __m128i mixed = _mm_sha1msg1_epu32(words[group & 3], words[(group + 1) & 3]);
    mixed = _mm_xor_si128(mixed, words[(group + 2) & 3]);
    return _mm_sha1msg2_epu32(mixed, words[(group + 3) & 3]);
}

INLINE void hash(uint32_t *const *states, const uint8_t *const *texts, size_t blocks, int count)
{
    __m128i abcd[2], e[2];
    UNROLLED for (int i = 0; i < count; i++) {
        abcd[i] = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)states[i]), 0x1B);
        e[i] = _mm_set_epi32((int)states[i][4], 0, 0, 0);
    }
    for (size_t at = 0; at < blocks * BLOCK; at += BLOCK) {
        __m128i abcd_before[2], e_before[2], words[2][4];
        UNROLLED for (int i = 0; i < count; i++) {
            abcd_before[i] = abcd[i];
            e_before[i] = e[i];
        }
        UNROLLED for (int group = 0; group < 20; group++) {
            UNROLLED for (int i = 0; i < count; i++) {
                __m128i next = next_words(texts[i] + at, words[i], group);
                words[i][group & 3] = next;
                next = group ? _mm_sha1nexte_epu32(e[i], next) : _mm_add_epi32(e[i], next);
                e[i] = abcd[i];
                abcd[i] = four_rounds(abcd[i], next, group);
            }
        }
        UNROLLED for (int i = 0; i < count; i++) {
            e[i] = _mm_sha1nexte_epu32(e[i], e_before[i]);
            abcd[i] = _mm_add_epi32(abcd[i], abcd_before[i]);
        }
    }
    UNROLLED for (int i = 0; i < count; i++) {
        _mm_storeu_si128((__m128i *)states[i], _mm_shuffle_epi32(abcd[i], 0x1B));
        states[i][4] = (uint32_t)_mm_extract_epi32(e[i], 3);
    }
}

HASHING void sha1_one(uint32_t *state, const uint8_t *text, size_t blocks)
{
    hash(&state, &text, blocks, 1);
}

HASHING void sha1_two(uint32_t *state, const uint8_t *text, uint32_t *other_state,
                      const uint8_t *other, size_t blocks)
{
    uint32_t *const states[] = {state, other_state};
    const uint8_t *const texts[] = {text, other};
    hash(states, texts, blocks, 2);
}

#else

int sha1_has_instructions(void)
{
    return 0;
}

void sha1_one(uint32_t *state, const uint8_t *text, size_t blocks)
{
    (void)state, (void)text, (void)blocks;
}

void sha1_two(uint32_t *state, const uint8_t *text, uint32_t *other_state, const uint8_t *other,
              size_t blocks)
{
    (void)state, (void)text, (void)other_state, (void)other, (void)blocks;
}

#endif
