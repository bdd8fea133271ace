"""Turns stored records into batches that send them again, in one pass over their bytes."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy, memset

from congreve.base.cursor cimport load_i64
from congreve.records cimport layout
from congreve.records.batches.batch cimport ID_LENGTH, properties_place, put_body, put_hex
from congreve.records.byte_compare cimport same
from congreve.records.byte_table cimport Key, key_of, slot_of
from congreve.records.message.properties cimport (
    RETRY_TOPIC, RETRY_TOPIC_UNCHECKED, UNIQ_KEY, WAIT, put_name, put_next_name,
)
from congreve.records.record cimport RECORD_OK, RecordView, check, property_of

from congreve.records.errors import RecordError

__all__ = ["ResendEncoder", "ResendIds"]

cdef enum:
    NAMES_MAX = 32
    NAME_SLOTS = 128        # a power of two, of which at most half are in use
    TOPICS_MAX = 64
    AT_HIGH = 16            # in an id: the digits of bits 16 to 31 of the offset
    AT_LOW = 28             # those of bits 0 to 15; the time is before them
    ADDED_MAX = layout.TOPIC_MAX + 64   # RETRY_TOPIC, UNIQ_KEY and WAIT with their separators


# A record that is sent again, in a list.
cdef struct ListedRecord:
    RecordView view
    ListedRecord *next


# The records for one topic, in the order of their offsets.
cdef struct RecordList:
    const uint8_t *topic
    int32_t topic_length
    ListedRecord *first
    ListedRecord *last


# Both ends are included.
cdef struct OffsetRange:
    int64_t first
    int64_t last


# The wanted offsets, from the one after the last record on.
cdef struct Wanted:
    const OffsetRange *range
    const OffsetRange *end
    int64_t next_offset


cdef inline bint is_wanted(Wanted *wanted, int64_t offset) noexcept nogil:
    """Whether this offset is in the ranges; a record that comes twice is wanted once."""
    if offset < wanted.next_offset:
        return False
    while wanted.range < wanted.end and wanted.range.last < offset:
        wanted.range += 1
    if wanted.range == wanted.end or offset < wanted.range.first:
        return False
    wanted.next_offset = offset + 1
    return True


cdef inline void append(RecordList *listed, ListedRecord *record) noexcept nogil:
    record.next = NULL
    if listed.first == NULL:
        listed.first = record
    else:
        listed.last.next = record
    listed.last = record


cdef list ranges_of(const ListedRecord *record, const ListedRecord *end):
    """The offsets of the records before `end`, as inclusive ranges."""
    cdef list ranges = []
    cdef int64_t first
    cdef int64_t last
    while record != end:
        first = last = record.view.queue_offset
        record = record.next
        while record != end and record.view.queue_offset == last + 1:
            last += 1
            record = record.next
        ranges.append((first, last))
    return ranges


@cython.final
cdef class ResendIds:
    """Message ids of 32 hex digits for the records of one queue, by queue offset.

    `head` are the first 16 digits and `elapsed` the eight of a time; the others are the last 32
    bits of the offset. Raises ValueError for another number of digits.
    (RocketMQ: MessageClientIDSetter.)
    """

    cdef uint8_t[ID_LENGTH] digits

    def __init__(self, str head not None, str elapsed not None):
        cdef bytes text = f"{head}0000{elapsed}0000".encode()
        if len(head) != AT_HIGH or len(text) != ID_LENGTH:
            raise ValueError(f"an id of {head!r} and {elapsed!r}: 16 and 8 digits are expected")
        memcpy(self.digits, PyBytes_AS_STRING(text), ID_LENGTH)

    cdef uint8_t *put(self, uint8_t *out, int64_t offset) noexcept nogil:
        memcpy(out, self.digits, ID_LENGTH)
        put_hex(out + AT_HIGH, <uint32_t> (offset >> 16))
        put_hex(out + AT_LOW, <uint32_t> offset)
        return out + ID_LENGTH

    def __call__(self, int64_t offset):
        """The id for the record at this queue offset."""
        cdef uint8_t[ID_LENGTH] digits
        self.put(digits, offset)
        return PyUnicode_DecodeUTF8(<const char *> digits, ID_LENGTH, "strict")


@cython.final
cdef class ResendEncoder:
    """Encodes stored records as batches of at most `size_max` bytes that send them again.

    A message has the body, the flag and the properties of its record, without those that
    `left_out` names, and a new id. It goes to the topic that the record names as RETRY_TOPIC; with
    `retry_topic` it goes to that topic and keeps the property. Some records are left to the caller:
    those that name no topic or an unchecked one, have a compressed body or one of `body_max` bytes
    or more, those that fit into no batch, and those of further topics after 64. (RocketMQ:
    MessageBatch.)
    """

    cdef list names             # the bytes of the keys
    cdef Key[NAMES_MAX] keys
    cdef (Key *)[NAME_SLOTS] slots
    cdef bytes retry_topic      # or None
    cdef bint to_retry_topic
    cdef int32_t size_max
    cdef int32_t body_max

    def __init__(self, left_out, *, int32_t size_max, int32_t body_max, str retry_topic=None):
        cdef Py_ssize_t i
        cdef bytes name
        self.names = [text.encode() for text in left_out]
        if len(self.names) > NAMES_MAX:
            raise ValueError(f"{len(self.names)} names of properties: use at most {NAMES_MAX}")
        memset(self.slots, 0, sizeof(self.slots))
        for i in range(len(self.names)):
            name = self.names[i]
            self.keys[i] = key_of(<const uint8_t *> PyBytes_AS_STRING(name), <int32_t> len(name))
            slot_of(self.slots, NAME_SLOTS, &self.keys[i])[0] = &self.keys[i]
        self.retry_topic = None if retry_topic is None else retry_topic.encode()
        self.to_retry_topic = retry_topic is not None
        self.size_max = size_max
        self.body_max = body_max

    def encode(self, bodies, wanted, ResendIds ids not None):
        """Encode the records whose queue offsets are in `wanted`, ascending ranges with both ends.

        `bodies` are those of pulls of one queue, in its order. Returns the batches, each as its
        topic, body and ranges, and the ranges that are left to the caller; an offset without a
        record is in neither. Raises RecordError for bytes that are not records.
        """
        cdef tuple parts = tuple(bodies)
        cdef list ends = list(wanted)
        cdef int64_t capacity = 1
        cdef bytes part
        cdef Py_ssize_t i
        cdef ListedRecord *listed
        cdef OffsetRange *ranges
        for part in parts:
            capacity += len(part) // layout.RECORD_FIXED
        listed = <ListedRecord *> malloc(capacity * sizeof(ListedRecord))
        ranges = <OffsetRange *> malloc((len(ends) + 1) * sizeof(OffsetRange))
        try:
            if listed == NULL or ranges == NULL:
                raise MemoryError()
            for i in range(len(ends)):
                ranges[i].first, ranges[i].last = ends[i]
            return self.encode_in(parts, ranges, len(ends), ids, listed)
        finally:
            free(listed)
            free(ranges)

    cdef tuple encode_in(self, tuple parts, const OffsetRange *ranges, Py_ssize_t range_count,
                         ResendIds ids, ListedRecord *listed):
        cdef RecordList[TOPICS_MAX] topics
        cdef RecordList others
        cdef Wanted wanted
        cdef int count = 0
        cdef bytes part
        cdef int64_t damaged
        wanted.range, wanted.end, wanted.next_offset = ranges, ranges + range_count, 0
        memset(topics, 0, sizeof(topics))
        memset(&others, 0, sizeof(others))
        for part in parts:
            damaged = self.sort(part, &wanted, &listed, topics, &count, &others)
            if damaged >= 0:
                raise RecordError(
                    f"the record at byte {damaged} of the {len(part)} of a pull is damaged"
                )
        batches = []
        for i in range(count):
            batches += self.batches_of(&topics[i], ids)
        return batches, ranges_of(others.first, NULL)

    cdef int64_t sort(self, bytes part, Wanted *wanted, ListedRecord **free_record,
                      RecordList *topics, int *count, RecordList *others):
        """Add the wanted records of a pull to the lists of their topics.

        Returns the position of the first one that is invalid, -1 without one.
        """
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(part)
        cdef int64_t length = len(part)
        cdef const uint8_t *retry = NULL
        cdef int32_t retry_length = 0
        if self.retry_topic is not None:
            retry = <const uint8_t *> PyBytes_AS_STRING(self.retry_topic)
            retry_length = <int32_t> len(self.retry_topic)
        with nogil:
            return self.sort_records(data, length, retry, retry_length, wanted, free_record, topics,
                                     count, others)

    cdef int64_t sort_records(self, const uint8_t *data, int64_t length, const uint8_t *retry,
                              int32_t retry_length, Wanted *wanted, ListedRecord **free_record,
                              RecordList *topics, int *count, RecordList *others) noexcept nogil:
        cdef ListedRecord *record
        cdef RecordList *list_of
        cdef const uint8_t *topic
        cdef int32_t topic_length = 0
        cdef int64_t at = 0
        while at < length:
            record = free_record[0]
            if length - at < layout.RECORD_FIXED or check(
                data + at, length - at, load_i64(data + at + layout.AT_PHYSICAL_OFFSET), False,
                &record.view,
            ) != RECORD_OK:
                return at
            at += record.view.size
            if not is_wanted(wanted, record.view.queue_offset):
                continue
            free_record[0] += 1
            topic = NULL
            if property_of(&record.view, RETRY_TOPIC_UNCHECKED, &topic_length) == NULL:
                topic = property_of(&record.view, RETRY_TOPIC, &topic_length)
            list_of = others
            if topic != NULL and topic_length <= layout.TOPIC_MAX and self.fits(&record.view):
                if retry != NULL:
                    topic, topic_length = retry, retry_length
                list_of = list_of_topic(topics, count, topic, topic_length)
                if list_of == NULL:
                    list_of = others
            append(list_of, record)
        return -1

    cdef bint fits(self, const RecordView *view) noexcept nogil:
        """Whether a batch can hold the record."""
        return (
            view.body_length < self.body_max
            and not view.sys_flag & layout.SYS_COMPRESSED
            and view.properties_length <= layout.PROPERTIES_MAX - ADDED_MAX
            and element_max(view) <= self.size_max
        )

    cdef list batches_of(self, const RecordList *listed, ResendIds ids):
        """The batches to one topic."""
        cdef list batches = []
        cdef ListedRecord *record = listed.first
        cdef ListedRecord *begin
        cdef bytes body
        cdef uint8_t *out
        cdef Py_ssize_t size
        topic = PyUnicode_DecodeUTF8(<const char *> listed.topic, listed.topic_length, "replace")
        while record != NULL:
            body = PyBytes_FromStringAndSize(NULL, self.size_max)
            out = <uint8_t *> PyBytes_AS_STRING(body)
            begin = record
            with nogil:
                size = self.fill(out, ids, &record) - out
            batches.append((topic, body[:size], ranges_of(begin, record)))
        return batches

    cdef uint8_t *fill(self, uint8_t *out, ResendIds ids, ListedRecord **record) noexcept nogil:
        """Encode records up to the first that may not fit; returns the end of the batch."""
        cdef const uint8_t *begin = out
        cdef const RecordView *view
        cdef uint8_t *place
        cdef uint8_t *end
        while record[0] != NULL:
            view = &record[0].view
            if out - begin + element_max(view) > self.size_max:
                break
            place = properties_place(out, view.body_length)
            end = self.put_properties(place, view, ids)
            put_body(out, view.body, view.body_length, view.flag, <int32_t> (end - place))
            out = end
            record[0] = record[0].next
        return out

    cdef uint8_t *put_properties(self, uint8_t *out, const RecordView *view,
                                 ResendIds ids) noexcept nogil:
        """Write the kept properties in their order, then the new ones."""
        cdef const uint8_t *at = view.properties
        cdef const uint8_t *end = at + view.properties_length
        cdef const uint8_t *stop
        cdef const uint8_t *value
        cdef int32_t length = 0
        while at < end:
            stop = <const uint8_t *> memchr(at, layout.PROPERTY_SEPARATOR, end - at)
            if stop == NULL:
                stop = end
            value = <const uint8_t *> memchr(at, layout.NAME_VALUE_SEPARATOR, stop - at)
            # Incomplete ones are skipped, as decode_properties() does.
            if value != NULL and value > at and value + 1 < stop and not self.leaves_out(
                at, <int32_t> (value - at)
            ):
                memcpy(out, at, stop - at)
                out += stop - at
                out[0] = layout.PROPERTY_SEPARATOR
                out += 1
            at = stop + 1
        if self.to_retry_topic:
            value = property_of(view, RETRY_TOPIC, &length)
            out = put_name(out, RETRY_TOPIC)
            memcpy(out, value, length)
            out += length
            out[0] = layout.PROPERTY_SEPARATOR
            out += 1
        out = put_next_name(ids.put(put_name(out, UNIQ_KEY), view.queue_offset), WAIT)
        memcpy(out, b"true", 4)
        return out + 4

    cdef bint leaves_out(self, const uint8_t *name, int32_t length) noexcept nogil:
        cdef Key key = key_of(name, length)
        return slot_of(self.slots, NAME_SLOTS, &key)[0] != NULL


cdef inline int64_t element_max(const RecordView *view) noexcept nogil:
    """Bytes that the element of a record may have."""
    return (
        layout.BATCH_ELEMENT_FIXED + <int64_t> view.body_length + view.properties_length + ADDED_MAX
    )


cdef RecordList *list_of_topic(RecordList *topics, int *count, const uint8_t *topic,
                               int32_t length) noexcept nogil:
    """The list of a topic, which is added where it is missing; NULL if there are too many."""
    cdef int i
    for i in range(count[0]):
        if same(topics[i].topic, topics[i].topic_length, topic, length):
            return &topics[i]
    if count[0] == TOPICS_MAX:
        return NULL
    i = count[0]
    topics[i].topic, topics[i].topic_length = topic, length
    count[0] += 1
    return &topics[i]
