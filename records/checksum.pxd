from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

# CRC-32 (IEEE), continued from `crc` (0 to begin), equal to zlib.crc32.
cdef uint32_t crc32(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil

ctypedef uint32_t (*Way)(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil

# zlib.crc32(data, crc) by one of the ways; `data` is a buffer.
cdef object crc_of(Way way, object data, uint32_t crc)

# What a record stores: CRC-32 of the body & 0x7FFFFFFF, 0 for an empty body.
cdef int32_t body_crc(const uint8_t *body, size_t length) noexcept nogil

# Java's String.hashCode of UTF-8 bytes (h = 31 h + UTF-16 unit, mod 2^32), continued from `h`;
# invalid bytes count as U+FFFD.
cdef int32_t string_hash(int32_t h, const uint8_t *utf8, size_t length) noexcept nogil

# The index's hash of "topic#key": abs(String.hashCode), 0 for -2^31.
cdef int32_t index_hash(const uint8_t *topic, size_t topic_length,
                        const uint8_t *key, size_t key_length) noexcept nogil
