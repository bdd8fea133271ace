"""SQL92 filters as a program for a small stack machine, with the reference's rules for types.

Property values are strings. A comparison with a number parses them as a number of its class. Two
strings can be equal or unequal, but have an order only as numbers. OUTCOME_ERROR stands for an
exception in Java, in the same cases: evaluation skips the same operands as in Java.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp

from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from congreve.records.filter.record_filter cimport FilterMemory, RecordFilter
from congreve.records.filter.value cimport (
    KIND_BOOLEAN, KIND_DOUBLE, KIND_INTEGER, KIND_LONG, KIND_NULL, KIND_STRING, Value, compare,
    real_of_text, same_text, set_boolean,
)

import enum
import sys

cdef Py_ssize_t BYTES_HEAD = sys.getsizeof(b"")

cdef enum:
    WORK_OF_INSTRUCTION = 8
    SHORT_VALUE = 64
    ENDING = 8              # bytes


class Op(enum.IntEnum):
    """Instructions of a FilterProgram, and the argument that each one takes.

    The first eight push a value. The next five replace the top of the stack, and those up to OR
    replace the two values on top. The last three read the top, keep it and may skip the next `int`
    instructions. INTEGER takes an int of 32 bits, LONG one of 64, DOUBLE a float; STRING takes
    UTF-8 bytes, PROPERTY a property's name as UTF-8 bytes; IN and NOT_IN take a tuple of UTF-8
    bytes. CAST turns every value but a boolean into false (RocketMQ:
    UnaryExpression.createBooleanCast).
    """

    NOTHING = OP_NULL
    FALSE = OP_FALSE
    TRUE = OP_TRUE
    INTEGER = OP_INTEGER
    LONG = OP_LONG
    DOUBLE = OP_DOUBLE
    STRING = OP_STRING
    PROPERTY = OP_PROPERTY
    NEGATE = OP_NEGATE
    NOT = OP_NOT
    CAST = OP_CAST
    IN = OP_IN
    NOT_IN = OP_NOT_IN
    EQUAL = OP_EQUAL
    GREATER = OP_GREATER
    GREATER_EQUAL = OP_GREATER_EQUAL
    LESS = OP_LESS
    LESS_EQUAL = OP_LESS_EQUAL
    AND = OP_AND
    OR = OP_OR
    SKIP_IF_NULL = OP_SKIP_IF_NULL
    SKIP_IF_FALSE = OP_SKIP_IF_FALSE
    SKIP_IF_TRUE = OP_SKIP_IF_TRUE


class Outcome(enum.IntEnum):
    """The result of an expression; only TRUE lets a message pass, ERROR is an exception in Java."""

    FALSE = OUTCOME_FALSE
    TRUE = OUTCOME_TRUE
    UNKNOWN = OUTCOME_UNKNOWN
    ERROR = OUTCOME_ERROR


@cython.final
cdef class FilterProgram(RecordFilter):
    """An SQL92 expression over the properties of a message (org.apache.rocketmq.filter).

    It runs over the bytes of stored records without the GIL. `code` is a sequence of (Op, argument)
    and leaves one boolean or null on a stack that never holds more than `depth` values.
    """

    def __cinit__(self, code, Py_ssize_t depth):
        cdef list texts = []
        cdef dict names = {}
        cdef Py_ssize_t i
        cdef int op
        self.text_bytes = []
        self.length = <int32_t> len(code)
        self.code = <Instruction *> PyMem_Calloc(self.length + 1, sizeof(Instruction))
        if self.code == NULL:
            raise MemoryError()
        for i in range(self.length):
            op, argument = code[i]
            if op == OP_PROPERTY:
                names[argument] = 0
        for i, argument in enumerate(sorted(names, key=name_key)):
            names[argument] = i  # in order, for the binary search
        for i in range(self.length):
            op, argument = code[i]
            self.encode(&self.code[i], op, argument, texts, names)
        self.name_count = <int32_t> len(names)
        self.names = <Value *> PyMem_Calloc(len(names) + 1, sizeof(Value))
        self.texts = <Value *> PyMem_Calloc(len(texts) + 1, sizeof(Value))
        self.endings = <uint64_t *> PyMem_Calloc(len(names) + 1, sizeof(uint64_t))
        if self.names == NULL or self.texts == NULL or self.endings == NULL:
            raise MemoryError()
        for name, i in names.items():
            self.names[i] = self.text_value(name)
            self.endings[i] = name_key(name)[0]
        for i, text in enumerate(texts):
            self.texts[i] = self.text_value(text)
        self.values = <int32_t> (len(names) + depth + 1)
        self.size = (
            self.length * sizeof(Instruction)
            + (len(names) + len(texts)) * sizeof(Value) + len(names) * sizeof(uint64_t)
            + sum(BYTES_HEAD + len(text) for text in self.text_bytes)
        )

    def __dealloc__(self):
        PyMem_Free(self.code)
        PyMem_Free(self.names)
        PyMem_Free(self.endings)
        PyMem_Free(self.texts)

    cdef int encode(self, Instruction *at, int op, object argument, list texts,
                    dict names) except -1:
        cdef Value *value = &at.value
        at.op = <OpCode> op
        if op == OP_FALSE or op == OP_TRUE:
            value.kind = KIND_BOOLEAN
            value.number = op == OP_TRUE
        elif op == OP_INTEGER or op == OP_LONG:
            value.kind = KIND_INTEGER if op == OP_INTEGER else KIND_LONG
            value.number = argument
        elif op == OP_DOUBLE:
            value.kind = KIND_DOUBLE
            value.real = argument
        elif op == OP_STRING:
            at.value = self.text_value(argument)
        elif op == OP_PROPERTY:
            value.number = names[argument]
        elif op == OP_IN or op == OP_NOT_IN:
            value.number = len(texts)
            texts.extend(sorted(set(argument), key=search_key))
            at.count = <int32_t> (len(texts) - value.number)
        elif op >= OP_SKIP_IF_NULL:
            value.number = argument
        return 0

    cdef Value text_value(self, bytes text):
        cdef Value value
        self.text_bytes.append(text)
        value.kind = KIND_STRING
        value.text = PyBytes_AS_STRING(text)
        value.length = <int32_t> len(text)
        value.number = 0
        value.real = 0
        return value

    def evaluate(self, bytes properties not None):
        """The Outcome for the encoded properties of a record."""
        cdef FilterMemory memory = FilterMemory()
        if not memory.fit(self):
            raise MemoryError()
        self.take_properties(properties, <int32_t> len(properties), memory.values)
        return Outcome(self.run(memory.values))

    cdef bint accepts_properties(self, const uint8_t *properties, int32_t length,
                                 FilterMemory memory) noexcept nogil:
        cdef int32_t longest = self.take_properties(properties, length, memory.values)
        memory.work += length + WORK_OF_INSTRUCTION * self.length
        if longest > SHORT_VALUE:
            # Each text of the list may parse it as a number.
            memory.work += <int64_t> longest * self.length
        return self.run(memory.values) == OUTCOME_TRUE

    cdef int32_t take_properties(self, const uint8_t *data, int32_t length,
                                 Value *slots) noexcept nogil:
        """Fill the slots; returns the length of the longest value in them.

        As in Java's map, the last of equal names counts; empty values do not.
        """
        cdef const uint8_t *at = data
        cdef const uint8_t *end = at + length
        cdef const uint8_t *name
        cdef const uint8_t *stop
        cdef int32_t longest = 0
        cdef int32_t i
        cdef uint64_t ending
        for i in range(self.name_count):
            slots[i].kind = KIND_NULL
        while at < end:
            name, ending = at, 0
            while at < end and at[0] != NAME_VALUE_SEPARATOR and at[0] != PROPERTY_SEPARATOR:
                ending = ending << 8 | at[0]
                at += 1
            if at == end or at[0] == PROPERTY_SEPARATOR:
                at += 1
                continue
            stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
            if stop == NULL:
                stop = end
            if name < at and at + 1 < stop:
                i = self.slot_of(name, at - name, ending)
                if i >= 0:
                    slots[i].kind = KIND_STRING
                    slots[i].text = <const char *> at + 1
                    slots[i].length = <int32_t> (stop - at - 1)
                    longest = max(longest, slots[i].length)
            at = stop + 1
        return longest

    cdef int32_t slot_of(self, const uint8_t *name, Py_ssize_t length,
                         uint64_t ending) noexcept nogil:
        """The slot of a property; -1 if no instruction reads it."""
        cdef int32_t low = 0
        cdef int32_t high = self.name_count
        cdef int32_t middle
        cdef int64_t order
        while low < high:
            middle = (low + high) >> 1
            if self.endings[middle] == ending:
                order = self.names[middle].length - length
                if order == 0 and length > ENDING:
                    order = memcmp(self.names[middle].text, name, length)
                if order == 0:
                    return middle
            else:
                order = -1 if self.endings[middle] < ending else 1
            if order < 0:
                low = middle + 1
            else:
                high = middle
        return -1

    cdef OutcomeCode run(self, Value *slots) noexcept nogil:
        cdef Value *top = slots + self.name_count - 1
        cdef Instruction *at = self.code
        cdef Instruction *end = at + self.length
        while at < end:
            if at.op <= OP_STRING:
                top += 1
                top[0] = at.value
            elif at.op == OP_PROPERTY:
                top += 1
                top[0] = slots[at.value.number]
            elif at.op == OP_IN or at.op == OP_NOT_IN:
                if top.kind != KIND_NULL:
                    set_boolean(top, self.is_in(top, at) != (at.op == OP_NOT_IN))
            elif at.op <= OP_CAST:
                replace_top(at.op, top)
            elif at.op <= OP_OR:
                top -= 1
                if not combine(at.op, top, top + 1):
                    return OUTCOME_ERROR
            elif skips(at.op, top):
                at += at.value.number
            at += 1
        if top.kind == KIND_NULL:
            return OUTCOME_UNKNOWN
        return OUTCOME_TRUE if top.number else OUTCOME_FALSE

    cdef bint is_in(self, Value *value, const Instruction *at) noexcept nogil:
        return position_of(value.text, value.length, self.texts + at.value.number, at.count) >= 0


cdef tuple search_key(bytes text):
    return len(text), text


cdef tuple name_key(bytes name):
    """Where slot_of() finds a name: by its last bytes, which need no call to compare."""
    return int.from_bytes(name[-ENDING:], "big"), len(name), name


cdef int32_t position_of(const char *text, Py_ssize_t length, const Value *ordered,
                         int32_t count) noexcept nogil:
    """The index of a text in the order of search_key(); -1 if it is missing."""
    cdef int32_t low = 0
    cdef int32_t high = count
    cdef int32_t middle
    cdef int64_t order
    while low < high:
        middle = low + (high - low) // 2
        order = ordered[middle].length - length
        if order == 0:
            order = memcmp(ordered[middle].text, text, length)
            if order == 0:
                return middle
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return -1


cdef bint skips(OpCode op, const Value *top) noexcept nogil:
    if op == OP_SKIP_IF_NULL:
        return top.kind == KIND_NULL
    return top.kind == KIND_BOOLEAN and top.number == (op == OP_SKIP_IF_TRUE)


cdef void replace_top(OpCode op, Value *top) noexcept nogil:
    """NEGATE, NOT and CAST."""
    if top.kind == KIND_NULL:
        return
    if op == OP_NOT:
        top.number = not top.number
    elif op == OP_CAST:
        if top.kind != KIND_BOOLEAN:
            set_boolean(top, False)
    elif top.kind == KIND_DOUBLE:
        top.real = -top.real
    elif top.kind == KIND_LONG:
        top.number = <int64_t> (-(<unsigned long long> top.number))
    elif top.kind == KIND_INTEGER:
        top.number = <int32_t> (-top.number)
    else:
        top.kind = KIND_NULL


cdef bint combine(OpCode op, Value *left, Value *right) noexcept nogil:
    """Compute the operation on two values, into `left`; false where Java throws."""
    cdef int order = 0
    if op == OP_AND or op == OP_OR:
        combine_logic(op == OP_OR, left, right)
        return True
    if op == OP_EQUAL:
        return combine_equal(left, right)
    if left.kind == KIND_NULL or right.kind == KIND_NULL:
        left.kind = KIND_NULL
        return True
    if left.kind == KIND_STRING and right.kind == KIND_STRING:
        # Strings have an order only as numbers.
        if not (real_of_text(left) and real_of_text(right)):
            return False
    if not compare(left, right, &order):
        return False
    if op == OP_GREATER:
        set_boolean(left, order > 0)
    elif op == OP_GREATER_EQUAL:
        set_boolean(left, order >= 0)
    elif op == OP_LESS:
        set_boolean(left, order < 0)
    else:
        set_boolean(left, order <= 0)
    return True


cdef void combine_logic(bint decisive, Value *left, const Value *right) noexcept nogil:
    """AND and OR; a left operand that decides the result has skipped this instruction."""
    if right.kind == KIND_BOOLEAN and right.number == decisive:
        left[0] = right[0]
    elif left.kind == KIND_NULL or right.kind == KIND_NULL:
        left.kind = KIND_NULL


cdef bint combine_equal(Value *left, Value *right) noexcept nogil:
    """Null equals null; null = something is unknown, something = null is not."""
    cdef int order = 0
    if left.kind == KIND_NULL:
        if right.kind == KIND_NULL:
            set_boolean(left, True)
    elif right.kind == KIND_NULL:
        set_boolean(left, False)
    elif left.kind == KIND_STRING and right.kind == KIND_STRING:
        set_boolean(left, same_text(left, right))
    elif compare(left, right, &order):
        set_boolean(left, order == 0)
    else:
        return False
    return True
