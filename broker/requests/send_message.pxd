from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from congreve.base.slices cimport Slice
from congreve.records.layout cimport PROPERTY_SEPARATOR
from congreve.records.record cimport Message
from congreve.remoting.wire.fast_headers cimport SendHeader


# Complete the message of a send, whose properties are encoded in `properties` already. Each record
# gets `cluster` as its last property; in a batch it follows the batch's own properties.
cdef inline void fill_message(Message *m, const SendHeader *send, Slice body, Slice cluster,
                              uint8_t *properties) noexcept nogil:
    m.topic = send.topic.data
    m.topic_length = send.topic.length
    m.body = body.data
    m.body_length = body.length
    m.properties_more = cluster.data
    m.properties_more_length = cluster.length
    if send.batch and m.properties_length:
        # Each member gets the properties of the batch's header, as it gets CLUSTER.
        properties[m.properties_length] = PROPERTY_SEPARATOR
        memcpy(properties + m.properties_length + 1, cluster.data, cluster.length)
        m.properties_more = properties
        m.properties_more_length += m.properties_length + 1
    m.queue_id = send.queue_id
    m.flag = send.flag
    m.sys_flag = send.sys_flag
    m.reconsume_times = send.reconsume_times
    m.born_timestamp = send.born_timestamp
    m.prepared_offset = 0
