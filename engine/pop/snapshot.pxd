from congreve.engine.pop.journal cimport Journal
from congreve.engine.pop.state cimport Window

# Entries that make a window as it is, whatever it was before. False without memory.
cdef bint put_state(Journal *journal, const Window *window) noexcept nogil
