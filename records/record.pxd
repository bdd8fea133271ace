from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport strlen

from congreve.records.host cimport Host

# What a producer sends, as slices of memory that the caller keeps alive during the call.
cdef struct Message:
    const uint8_t *topic
    int32_t topic_length
    const uint8_t *body
    int32_t body_length
    const uint8_t *properties       # as stored, less `properties_more`
    int32_t properties_length
    const uint8_t *properties_more  # appended (with a separator where needed): CLUSTER=...
    int32_t properties_more_length
    int32_t queue_id
    int32_t flag
    int32_t sys_flag                # host bits are set by encode()
    int32_t reconsume_times
    int64_t born_timestamp
    int64_t prepared_offset
    int64_t tags_code               # of the consume-queue entry
    Host born_host
    Host store_host

# What a stored record says, as slices of the log.
cdef struct RecordView:
    int32_t size
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t body_crc
    int32_t reconsume_times
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_timestamp
    int64_t store_timestamp
    int64_t prepared_offset
    const uint8_t *born_host
    int32_t born_host_length        # 8 or 20, with the port
    const uint8_t *store_host
    int32_t store_host_length
    const uint8_t *body
    int32_t body_length
    const uint8_t *topic
    int32_t topic_length
    const uint8_t *properties
    int32_t properties_length

cdef enum RecordCheck:
    RECORD_OK = 0
    RECORD_BLANK = 1        # the rest of this segment is empty by design
    RECORD_END = 2          # zero magic and size: nothing was ever written here
    RECORD_BAD = 3          # magic, size, CRC, physical offset or a length is wrong

# A Record's fields as a Message, with the bytes that it points to.
cdef class Outgoing:
    cdef Message message
    cdef bytes topic
    cdef bytes body
    cdef bytes properties

# Whether every length is within the format's limits: topic 127, properties 32767 bytes.
cdef bint is_legal(const Message *message) noexcept nogil

# Bytes that encode() will write.
cdef int64_t encoded_size(const Message *message) noexcept nogil

# Writes one record at `at` (encoded_size() bytes), its size last: in a file of zeros
# no reader finds it before it is complete. The one writer of the record layout.
cdef void encode(uint8_t *at, const Message *message, int64_t size, int64_t queue_offset,
                 int64_t physical_offset, int64_t store_timestamp) noexcept nogil

cdef void encode_blank(uint8_t *at, int64_t remaining) noexcept nogil

# Reads the record at `at`, of which `available` bytes may be read; fills `view` on RECORD_OK. The
# record must name `physical_offset` as its own; with `verify_crc` its CRC must be right.
cdef RecordCheck check(const uint8_t *at, int64_t available, int64_t physical_offset,
                       bint verify_crc, RecordView *view) noexcept nogil

# The value of property `name`; NULL when absent. Last one wins, as in Java's map.
cdef const uint8_t *find_property(const uint8_t *properties, int32_t length, const char *name,
                                  int32_t name_length, int32_t *value_length) noexcept nogil

# The same of a record, for a constant name.
cdef inline const uint8_t *property_of(const RecordView *view, const char *name,
                                       int32_t *value_length) noexcept nogil:
    return find_property(view.properties, view.properties_length, name, <int32_t> strlen(name),
                         value_length)

# The tags code of a stored record: hash of TAGS, 0 without.
cdef int64_t tags_code(const uint8_t *properties, int32_t length) noexcept nogil

# Reads one element of a batch body, of which `left` bytes are there, into body, properties and
# flag of `element`; its size, or 0 if it is malformed.
cdef int32_t read_batch_element(const uint8_t *at, int32_t left, Message *element) noexcept nogil
