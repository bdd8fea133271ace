"""Bodies of REGISTER_BROKER, written and read (RocketMQ: RegisterBrokerBody, TopicConfig).

The compressed form is one zlib stream over pieces, all lengths big-endian::

    i32 length, DataVersion as JSON
    i32 count
    count x ( i32 length, "name readQueues writeQueues perm filterType" )
    i32 length, filter servers as a JSON array

It loses topicSysFlag and order.
"""

import struct
import zlib

import msgspec

from congreve.remoting import fastjson
from congreve.remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.errors import BodyError

FIRST_VERSION_WITH_FILTER_SERVERS = 37
"""MQVersion ordinal of V3_0_11; brokers before it send their topics alone."""

INFLATED_MAX = 64 * 1024 * 1024
"""Bytes that a compressed body may become: about a million topics."""

_LENGTH = struct.Struct(">i")
_TOPIC_FIELDS = 5


def write_registration(body: RegisterBrokerBody, *, compressed: bool) -> bytes:
    """The body that a broker of our version sends."""
    if not compressed:
        return body.encode()
    topics = body.topic_config_serialize_wrapper
    lines = [
        f"{t.topic_name} {t.read_queue_nums} {t.write_queue_nums} {t.perm} {t.topic_filter_type}"
        for t in topics.topic_config_table.values()
    ]
    pieces = [_sized(topics.data_version.encode()), _LENGTH.pack(len(lines))]
    pieces += [_sized(line.encode()) for line in lines]
    pieces.append(_sized(fastjson.dumps(body.filter_server_list).encode()))
    return zlib.compress(b"".join(pieces), zlib.Z_BEST_COMPRESSION)


def read_registration(body: bytes, version: int, *, compressed: bool) -> RegisterBrokerBody:
    """What a broker of that MQVersion ordinal sends. Raises BodyError.

    An empty body means no topics, at data version 0.
    """
    if not body:
        return RegisterBrokerBody()
    if version < FIRST_VERSION_WITH_FILTER_SERVERS:
        topics = TopicConfigSerializeWrapper.decode(body)
        return RegisterBrokerBody(topic_config_serialize_wrapper=topics)
    if not compressed:
        return RegisterBrokerBody.decode(body)
    return _read_pieces(_inflate(body))


def _sized(piece: bytes) -> bytes:
    return _LENGTH.pack(len(piece)) + piece


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_MAX)
    except zlib.error as error:
        raise BodyError(f"registration of {len(body)} bytes: {error}") from error
    if not inflater.eof:
        raise BodyError(
            f"registration of {len(body)} bytes is cut short, or inflates to over {INFLATED_MAX}"
        )
    return data


def _read_pieces(data: bytes) -> RegisterBrokerBody:
    version, position = _piece(data, 0)
    count, position = _number(data, position)
    topics = {}
    for _ in range(count):
        line, position = _piece(data, position)
        topic = _topic(line)
        topics[topic.topic_name] = topic
    filters, _ = _piece(data, position)
    try:
        filter_servers = msgspec.convert(fastjson.loads(filters), list[str])
    except msgspec.ValidationError as error:
        raise BodyError(f"filter servers {filters[:200]!r}: {error}") from error
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table=topics, data_version=DataVersion.decode(version)
        ),
        filter_server_list=filter_servers,
    )


def _topic(line: bytes) -> TopicConfig:
    fields = line.decode("utf-8", "replace").split(" ")
    if len(fields) != _TOPIC_FIELDS:
        raise BodyError(f"registered topic {line[:200]!r}: {_TOPIC_FIELDS} fields are needed")
    name, read_queues, write_queues, perm, filter_type = fields
    try:
        return TopicConfig(
            topic_name=name,
            read_queue_nums=int(read_queues),
            write_queue_nums=int(write_queues),
            perm=int(perm),
            topic_filter_type=filter_type,
        )
    except ValueError as error:
        raise BodyError(f"registered topic {line[:200]!r}: {error}") from error


def _number(data: bytes, position: int) -> tuple[int, int]:
    end = position + _LENGTH.size
    if end > len(data):
        raise BodyError(f"registration of {len(data)} inflated bytes ends within a length")
    (number,) = _LENGTH.unpack_from(data, position)
    return number, end


def _piece(data: bytes, position: int) -> tuple[bytes, int]:
    length, start = _number(data, position)
    end = start + length
    if length < 0 or end > len(data):
        raise BodyError(
            f"registration of {len(data)} inflated bytes: {length} bytes at {start} do not fit"
        )
    return data[start:end], end
