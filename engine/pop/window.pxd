from libc.stdint cimport int64_t

from congreve.engine.pop.state cimport DueHeap, Out, Window

# The first offset that is not settled.
cdef int64_t begin_of(const Window *window) noexcept nogil
# Adds a message after all others; its offset is at least window.next, which is set after it.
# False without memory.
cdef bint add_out(DueHeap *heap, Window *window, const Out *out) noexcept nogil
# The message that is out at an offset, and its slot; NULL if there is none.
cdef Out *find_out(const Window *window, int64_t offset, int64_t *slot) noexcept nogil
# Asks memory for what find_out() will read.
cdef void prefetch_out(const Window *window, int64_t offset) noexcept nogil
# The first message that is out at or after an offset.
cdef Out *out_from(const Window *window, int64_t offset, int64_t *slot) noexcept nogil
# After a change of a message's pop or invisible time.
cdef void set_due(DueHeap *heap, Window *window, const Out *out, int64_t slot) noexcept nogil
cdef void settle_out(DueHeap *heap, Window *window, Out *out, int64_t slot) noexcept nogil
# Drops all that is out.
cdef void clear_window(DueHeap *heap, Window *window) noexcept nogil
