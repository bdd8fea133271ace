"""Names that are not ordinary, as one bit each: calls with one of them need the rules in Python."""

cimport cython
from libc.stdint cimport uint64_t

from congreve.base.slices cimport slice_of


@cython.final
cdef class HashedNames:
    """A set of names that only grows; lanes read it while the event loop adds to it."""

    def __init__(self, names=()):
        for name in names:
            self.add(name)

    def add(self, str name not None):
        """Add a name."""
        cdef bytes encoded = name.encode()
        cdef uint64_t hashed = hash_of(slice_of(encoded))
        self.bits[hashed // 64] |= <uint64_t> 1 << hashed % 64
