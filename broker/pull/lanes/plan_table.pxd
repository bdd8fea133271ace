from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from congreve.records.byte_table cimport Key


# A plan of a lane: the first fields of an entry.
cdef struct LanePlan:
    Key key
    PyObject *plan          # owned; NULL: the event loop serves such requests
    int64_t changes         # and `added`: the numbers of the plans at the look-up
    int64_t added


cdef class LanePlanTable:
    cdef Key **slots            # of LanePlans
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count
    cdef Py_ssize_t keys_size   # bytes
    # Those of PullPlans or PopPlans: a plan is valid while `changes` is the same; another `added`
    # means that plans were added. A subclass sets both.
    cdef const int64_t *changes
    cdef const int64_t *added

    # The entry with this key; NULL if the event loop must serve the request.
    cdef LanePlan *plan_of(self, const Key *key) noexcept nogil
    # The entry with this key, NULL without one.
    cdef LanePlan *known(self, const Key *key) noexcept nogil
    # A new entry of `size` zeroed bytes.
    cdef LanePlan *add(self, const Key *key, Py_ssize_t size) except NULL
    # Removes all entries. A subclass calls it when it is deallocated.
    cdef int clear(self) except -1

    # For subclasses: looks the plan up again; lets go of what an entry holds, and of its plan.
    cdef int learn(self, const Key *key) except -1
    cdef int forget(self, LanePlan *known) except -1

    cdef bint learn_with_gil(self, const Key *key) noexcept with gil
    cdef int grow(self) except -1
