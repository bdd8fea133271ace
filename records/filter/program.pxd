from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.records.filter.record_filter cimport RecordFilter

# Numbers of Op.
cdef enum OpCode:
    OP_NULL             # push
    OP_FALSE
    OP_TRUE
    OP_INTEGER
    OP_LONG
    OP_DOUBLE
    OP_STRING
    OP_PROPERTY
    OP_NEGATE           # replace the top
    OP_NOT
    OP_CAST
    OP_IN
    OP_NOT_IN
    OP_EQUAL            # replace the two on top
    OP_GREATER
    OP_GREATER_EQUAL
    OP_LESS
    OP_LESS_EQUAL
    OP_AND
    OP_OR
    OP_SKIP_IF_NULL     # leave the top, go on `number` instructions later
    OP_SKIP_IF_FALSE
    OP_SKIP_IF_TRUE

# Java's classes.
cdef enum Kind:
    KIND_NULL
    KIND_BOOLEAN
    KIND_INTEGER
    KIND_LONG
    KIND_DOUBLE
    KIND_STRING

# Numbers of Outcome.
cdef enum OutcomeCode:
    OUTCOME_FALSE
    OUTCOME_TRUE
    OUTCOME_UNKNOWN
    OUTCOME_ERROR

cdef struct Value:
    Kind kind
    int32_t length          # of a string
    int64_t number          # a boolean too
    double real
    const char *text

cdef struct Instruction:
    OpCode op
    int32_t count           # of the texts of IN
    Value value             # what is pushed; `number` is a property's slot, an index or a distance


cdef class FilterProgram(RecordFilter):
    cdef Instruction *code
    cdef int32_t length
    cdef Value *texts       # of IN lists, one behind the other
    cdef Value *names
    cdef int32_t name_count
    # Of the evaluation that is under way: one at a time.
    cdef Value *slots       # values of the properties in `names`
    cdef Value *stack
    cdef int32_t longest    # of those values
    cdef list text_bytes    # the bytes that all texts lie in

    cdef void take_properties(self, const uint8_t *data, int32_t length) noexcept nogil
    cdef void take_property(self, const char *name, Py_ssize_t name_length, const char *text,
                            Py_ssize_t length) noexcept nogil
    cdef OutcomeCode run(self) noexcept nogil
    cdef bint is_in(self, Value *value, const Instruction *at) noexcept nogil
    cdef int encode(self, Instruction *at, int op, object argument, list texts,
                    dict names) except -1
    cdef Value text_value(self, bytes text)
