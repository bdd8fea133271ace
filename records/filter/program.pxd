from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from congreve.records.filter.record_filter cimport FilterMemory, RecordFilter
from congreve.records.filter.value cimport Value

# The numbers of the enum Op.
cdef enum OpCode:
    OP_NULL             # from here on: pushes a value
    OP_FALSE
    OP_TRUE
    OP_INTEGER
    OP_LONG
    OP_DOUBLE
    OP_STRING
    OP_PROPERTY
    OP_NEGATE           # from here on: replaces the top
    OP_NOT
    OP_CAST
    OP_IN
    OP_NOT_IN
    OP_EQUAL            # from here on: replaces the two values on top
    OP_GREATER
    OP_GREATER_EQUAL
    OP_LESS
    OP_LESS_EQUAL
    OP_AND
    OP_OR
    OP_SKIP_IF_NULL     # from here on: keeps the top, may skip `number` instructions
    OP_SKIP_IF_FALSE
    OP_SKIP_IF_TRUE

# The numbers of the enum Outcome.
cdef enum OutcomeCode:
    OUTCOME_FALSE
    OUTCOME_TRUE
    OUTCOME_UNKNOWN
    OUTCOME_ERROR

cdef struct Instruction:
    OpCode op
    int32_t count           # number of texts of an IN
    # The pushed value; its `number` may be a property's slot, an index of the texts, or the number
    # of instructions to skip.
    Value value


cdef class FilterProgram(RecordFilter):
    cdef Instruction *code
    cdef int32_t length
    cdef Value *texts       # of all IN lists, consecutive
    cdef Value *names
    cdef int32_t name_count
    cdef uint64_t *endings  # the last eight bytes of each name; `names` are in this order
    cdef list text_bytes    # the bytes that all texts point into

    # A run's Values are the slots, one for each of `names`, and the stack after them.
    cdef int32_t take_properties(self, const uint8_t *data, int32_t length,
                                 Value *slots) noexcept nogil
    cdef int32_t slot_of(self, const uint8_t *name, Py_ssize_t length,
                         uint64_t ending) noexcept nogil
    cdef OutcomeCode run(self, Value *slots) noexcept nogil
    cdef bint is_in(self, Value *value, const Instruction *at) noexcept nogil
    cdef int encode(self, Instruction *at, int op, object argument, list texts,
                    dict names) except -1
    cdef Value text_value(self, bytes text)
