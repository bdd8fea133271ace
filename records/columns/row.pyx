"""One record as a row of a table: whether it is valid, and its properties as slices."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy, strlen

from congreve.base.cursor cimport load_i32
from congreve.records cimport layout
from congreve.records.host cimport Host, put_message_id
from congreve.records.message.properties cimport KEYS, TAGS, UNIQ_KEY, is_property
from congreve.records.record cimport RECORD_OK, RecordView, check

cdef extern from "<string.h>" nogil:
    void *memrchr(const void *at, int byte, size_t length)


cdef inline Text text(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    cdef Text found
    found.at = at
    found.length = <int32_t> (stop - at)
    return found


cdef void look_at(Row *row, const uint8_t *data, int64_t length, int64_t place,
                  int64_t physical_offset, bint verify_crc) noexcept nogil:
    row.state = NO_RECORD
    if not 0 <= place < length:
        return
    if check(data + place, length - place, physical_offset, verify_crc, &row.view) == RECORD_OK:
        row.state = SOUND
    elif verify_crc and check(data + place, length - place, physical_offset, False,
                              &row.view) == RECORD_OK:
        row.state = BAD_CRC


cdef int32_t split(const RecordView *view, Piece *pieces) noexcept nogil:
    cdef const uint8_t *at = view.properties
    cdef const uint8_t *end = at + view.properties_length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef Piece *piece
    cdef int32_t count = 0
    cdef int32_t i
    while at < end:
        stop = <const uint8_t *> memchr(at, layout.PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        value = <const uint8_t *> memchr(at, layout.NAME_VALUE_SEPARATOR, stop - at)
        if value != NULL and value > at and value + 1 < stop:
            piece = &pieces[count]
            piece.name.at = at
            piece.name.length = <int32_t> (value - at)
            for i in range(count):
                if same(&pieces[i].name, &piece.name):
                    piece = &pieces[i]
                    break
            else:
                count += 1
            piece.value.at = value + 1
            piece.value.length = <int32_t> (stop - value - 1)
        at = stop + 1
    return count


# It starts at the end, because the last of equal names counts.
cdef void find_names(Row *row, int32_t wanted) noexcept nogil:
    cdef const uint8_t *begin = row.view.properties
    cdef const uint8_t *stop = begin + row.view.properties_length
    cdef const uint8_t *at
    row.tags.at = row.keys.at = row.unique_key.at = NULL
    while wanted and stop > begin:
        at = <const uint8_t *> memrchr(begin, layout.PROPERTY_SEPARATOR, stop - begin)
        at = begin if at == NULL else at + 1
        if wanted & WANT_TAGS and is_property(at, stop, TAGS):
            wanted ^= WANT_TAGS
            row.tags = text(at + strlen(TAGS) + 1, stop)
        elif wanted & WANT_KEYS and is_property(at, stop, KEYS):
            wanted ^= WANT_KEYS
            row.keys = text(at + strlen(KEYS) + 1, stop)
        elif wanted & WANT_UNIQUE_KEY and is_property(at, stop, UNIQ_KEY):
            wanted ^= WANT_UNIQUE_KEY
            row.unique_key = text(at + strlen(UNIQ_KEY) + 1, stop)
        stop = at - 1


cdef int32_t put_offset_id(uint8_t *at, const RecordView *view) noexcept nogil:
    cdef Host host
    host.length = view.store_host_length - 4
    memcpy(host.address, view.store_host, host.length)
    host.port = load_i32(view.store_host + host.length)
    return <int32_t> (put_message_id(at, &host, view.physical_offset) - at)
