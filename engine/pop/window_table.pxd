from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport Slice
from congreve.engine.pop.state cimport Window, WindowTable

# Bytes of a name without the group and topic.
cdef enum:
    NAME_FIXED = 9

# The name of a window; returns its length. There is room for NAME_FIXED bytes and both texts, none
# of which is longer than an int16 says.
cdef int32_t put_name(uint8_t *at, Slice group, Slice topic, int32_t queue_id) noexcept nogil
# False without memory.
cdef bint add_window(WindowTable *table, Window *window) noexcept nogil
# A snapshot leaves it out that has not copied it yet.
cdef void remove_window(WindowTable *table, Window *window) noexcept nogil
# NULL if there is none.
cdef Window *window_named(const WindowTable *table, const uint8_t *name,
                          int32_t length) noexcept nogil
