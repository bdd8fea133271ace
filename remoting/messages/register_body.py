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
from collections.abc import Generator
from typing import TypeVar

import msgspec

from congreve.base.steps import at_once
from congreve.remoting.errors import BodyError
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.body import Body
from congreve.remoting.wire.frame import FRAME_MAX

FIRST_VERSION_WITH_FILTER_SERVERS = 37
"""MQVersion ordinal of V3_0_11; brokers before it send their topics alone."""

INFLATED_MAX = FRAME_MAX
"""Bytes that a compressed body may become: as many as one that is not compressed may have."""

TOPICS_MAX = 250_000
"""Topics of one registration."""

PART_BYTES = 64 << 10
"""Bytes of topics, by topic_size(), of one of the registrations by which a broker sends them.

A name server that has started gets one of each broker at the same time.
"""

_EMPTY_SIZE = len(fastjson.dumps(TopicConfig("", 0, 0, 0, "", 0))) - len('""""0000')
B = TypeVar("B", bound=Body)
_LENGTH = struct.Struct(">i")
_TOPIC_NAMES = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
_TOPIC_FIELDS = len(_TOPIC_NAMES)


def topic_size(topic: TopicConfig) -> int:
    """The bytes of a topic in a registration that is not compressed."""
    name = len(fastjson.dumps(topic.topic_name).encode())
    kind = len(fastjson.dumps(topic.topic_filter_type).encode())
    numbers = f"{topic.read_queue_nums}{topic.write_queue_nums}{topic.perm}{topic.topic_sys_flag}"
    size = _EMPTY_SIZE + 2 * name + kind + len(numbers) - topic.order + len(":,")
    if topic.attributes is not None:
        size += (
            len(fastjson.dumps({"attributes": topic.attributes}).encode()) - len("{}") + len(",")
        )
    return size


def write_registration(body: RegisterBrokerBody, *, compressed: bool) -> bytes:
    """The body that a broker of our version sends."""
    written = at_once(registration_steps(body, compressed=compressed))
    return deflated(written) if compressed else written


def registration_steps(
    body: RegisterBrokerBody, *, compressed: bool
) -> Generator[None, None, bytes]:
    """write_registration() in steps, without the last one: deflated()."""
    if not compressed:
        return (yield from body.encode_steps())
    topics = body.topic_config_serialize_wrapper
    pieces = [
        _sized(topics.data_version.encode()),
        _LENGTH.pack(len(topics.topic_config_table)),
    ]
    for t in topics.topic_config_table.values():
        line = (
            f"{t.topic_name} {t.read_queue_nums} {t.write_queue_nums} {t.perm}"
            f" {t.topic_filter_type}"
        )
        pieces.append(_sized(line.encode()))
        yield
    pieces.append(_sized(fastjson.dumps(body.filter_server_list).encode()))
    return b"".join(pieces)


def deflated(body: bytes) -> bytes:
    """The compressed form; without the GIL, so a thread may do it."""
    return zlib.compress(body, zlib.Z_BEST_COMPRESSION)


def read_registration(body: bytes, version: int, *, compressed: bool) -> RegisterBrokerBody:
    """What a broker of that MQVersion ordinal sends. Raises BodyError, for too many topics too.

    An empty body means no topics, at data version 0.
    """
    if not body:
        return RegisterBrokerBody()
    if version < FIRST_VERSION_WITH_FILTER_SERVERS:
        topics = _decoded(TopicConfigSerializeWrapper, body)
        read = RegisterBrokerBody(topic_config_serialize_wrapper=topics)
    elif compressed:
        return _read_pieces(_inflate(body))
    else:
        read = _decoded(RegisterBrokerBody, body)
    _check_count(len(read.topic_config_serialize_wrapper.topic_config_table))
    return read


def _decoded(kind: type[B], body: bytes) -> B:
    """Body.decode(); what is standard JSON with all types as they should be is read in one pass."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return kind.decode(body)


def _check_count(topics: int) -> None:
    if topics > TOPICS_MAX:
        raise BodyError(f"registration of {topics} topics: {TOPICS_MAX} are allowed")


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
    _check_count(count)
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
    fields = line.decode("utf-8", "replace").split(" ", _TOPIC_FIELDS)
    if fields[_TOPIC_FIELDS:] and fields[-1][:1] in ("", "{"):
        del fields[-1]  # RocketMQ 5: the attributes, which no route has
    if len(fields) != _TOPIC_FIELDS:
        raise BodyError(f"registered topic {line[:200]!r}: {_TOPIC_FIELDS} fields are needed")
    try:
        return msgspec.convert(
            dict(zip(_TOPIC_NAMES, fields, strict=True)), TopicConfig, strict=False
        )
    except msgspec.ValidationError as error:
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
