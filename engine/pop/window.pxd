from libc.stdint cimport int64_t

from congreve.engine.pop.state cimport DueHeap, Out, Place, Window

# The first offset that is not settled.
cdef int64_t begin_of(const Window *window) noexcept nogil
# Adds a message after all others; its offset is at least window.next, which is set after it.
# False without memory.
cdef bint add_out(DueHeap *heap, Window *window, const Out *out) noexcept nogil
# The place of the message that is out at an offset; False if there is none.
cdef bint find_out(const Window *window, int64_t offset, Place *place) noexcept nogil
# Asks memory for what find_out() will read.
cdef void prefetch_out(const Window *window, int64_t offset) noexcept nogil
# The place of the first message that is out at or after an offset; False if there is none.
cdef bint out_from(const Window *window, int64_t offset, Place *place) noexcept nogil
# Lets a message be out as `out` from now on, waiting. False without memory.
cdef bint change_out(DueHeap *heap, Window *window, Place *place, const Out *out) noexcept nogil
# Lets a message wait again that due() has returned.
cdef void wait_out(DueHeap *heap, Window *window, const Place *place) noexcept nogil
cdef void settle_out(DueHeap *heap, Window *window, const Place *place) noexcept nogil
# Drops all that is out.
cdef void clear_window(DueHeap *heap, Window *window) noexcept nogil
