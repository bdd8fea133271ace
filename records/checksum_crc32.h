/* CRC-32 (IEEE, reflected), as zlib's. Call crc32_setup() once before anything else. */
#ifndef CONGREVE_CHECKSUM_CRC32_H
#define CONGREVE_CHECKSUM_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Fills the tables and looks at the CPU. */
void crc32_setup(void);

uint32_t crc32_by_tables(uint32_t crc, const uint8_t *data, size_t length);

/* By tables where the CPU cannot multiply without carries. */
uint32_t crc32_by_folding(uint32_t crc, const uint8_t *data, size_t length);

/* The quickest way that this CPU has. */
uint32_t crc32_best(uint32_t crc, const uint8_t *data, size_t length);

#endif
