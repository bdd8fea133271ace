#ifndef CONGREVE_HMAC_SHA1_BLOCKS_H
#define CONGREVE_HMAC_SHA1_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

/* SHA-1 with the processor's instructions. A state is five words, a block 64 bytes. */

/* Whether this processor has them; without them the other functions must not be called. */
int sha1_has_instructions(void);

/* Hash the blocks of a text. */
void sha1_one(uint32_t *state, const uint8_t *text, size_t blocks);

/* Hash as many blocks of two texts. An instruction waits for the one before it of the same text
 * for longer than the processor needs to begin another one. */
void sha1_two(uint32_t *state, const uint8_t *text, uint32_t *other_state, const uint8_t *other,
              size_t blocks);

#endif
