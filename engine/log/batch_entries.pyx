"""Entries of a batch in its consume queue."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport strlen

from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.message.properties cimport TAGS
from congreve.records.record cimport (
    Message, encoded_size, find_property, read_batch_element, tags_code as hash_tags,
)

from congreve.io_backends.errors import BackendError


# The batch's properties are after the element's own, so they count, as when a record is read.
cdef inline int64_t element_tags_code(const Message *element) noexcept nogil:
    cdef int32_t length
    if find_property(element.properties_more, element.properties_more_length, TAGS,
                     <int32_t> strlen(TAGS), &length) != NULL:
        return hash_tags(element.properties_more, element.properties_more_length)
    return hash_tags(element.properties, element.properties_length)


cdef bint put_batch(ConsumeQueue queue, Message *element, const uint8_t *batch, int32_t length,
                    int64_t physical_offset) noexcept nogil:
    cdef int32_t position = 0
    cdef int64_t size
    while position < length:
        position += read_batch_element(batch + position, length - position, element)
        size = encoded_size(element)
        if queue.free_entries == 0 and not made_room(queue):
            return False
        queue.put(physical_offset, <int32_t> size, element_tags_code(element))
        physical_offset += size
    return True


# False hides the error; the caller then calls make_room() itself, which raises it again.
cdef bint made_room(ConsumeQueue queue) noexcept with gil:
    try:
        queue.make_room()
    except BackendError:
        return False
    return queue.free_entries > 0
