"""Parsers of records, messages and routes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from congreve.base.clock import Clock
from congreve.broker.accounts.accounts import Accounts
from congreve.broker.replication.login import Challenge, HaLogin
from congreve.broker.requests import properties
from congreve.broker.send.reserved_properties import ReservedProperties
from congreve.client.compression import CompressionType, compress, decompress
from congreve.client.message import MessageQueue
from congreve.client.received import PulledRecords
from congreve.client.transport.route import _read as read_route
from congreve.records.batches import batch_body
from congreve.records.columns.builder import KINDS, RecordColumns
from congreve.records.filter.syntax import FilterCompiler
from congreve.records.inflate import INFLATED_MAX, inflate
from congreve.records.message import pop_offsets
from congreve.records.message.message import Record
from congreve.records.message.pop_handle import PopHandle
from congreve.records.message.property_codec import decode_properties
from congreve.records.message.recall_handle import RecallHandle
from congreve.records.record import (
    decode_record,
    decode_records,
    encode_record,
    offset_message_id,
    parse_offset_message_id,
)
from congreve.records.restore import COMMITTED, DELAYED, TIMED, restored
from congreve.remoting.messages import bodies
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

from .parser import Parser, text


def _record(**fields: Any) -> bytes:
    given = {"topic": "T", "body": b"body", "properties": {"TAGS": "a", "KEYS": "k"}, **fields}
    return encode_record(Record(**given))


RECORDS = [
    _record(),
    _record(queue_offset=1, properties={}) + _record(queue_offset=2, born_host=("::1", 1)),
    _record(body=zlib.compress(b"b" * 100), sys_flag=1),
    _record(
        topic="SCHEDULE_TOPIC_XXXX",
        properties={"REAL_TOPIC": "T", "REAL_QID": "1", "DELAY": "3", "PGROUP": "g"},
    ),
]


def _records() -> Iterator[Parser]:
    record = ("records/record.pyx", "records/message/property_codec.pyx", "records/host.pyx")
    yield Parser("record", record, decode_record, RECORDS)
    yield Parser("records", record, decode_records, RECORDS)
    yield Parser("properties", record, decode_properties, [b"a\1b\2c\1d\2"])
    for kind in (DELAYED, TIMED, COMMITTED):
        restore = partial(restored, kind=kind)
        yield Parser(f"parked record {kind}", ("records/restore.pyx",), restore, RECORDS)
    yield Parser(
        "recall handle",
        ("records/message/recall_handle.py",),
        lambda data: RecallHandle.decode(text(data)),
        [
            RecallHandle("T", "b", "1767225600000", "7F00000100002A9F0000000000000001")
            .encode()
            .encode()
        ],
    )
    yield Parser(
        "login of a slave",
        ("broker/replication/login.py",),
        lambda data: _checked_login(data, Challenge("store", "number")),
        [b'{"accessKey":"a","signature":"s"}', b'{"accessKey":"\xff"}'],
    )
    yield Parser(
        "login of a slave in its old form",
        ("broker/replication/login.py",),
        lambda data: _checked_login(data, None),
        [b'{"accessKey":"a","time":1,"nonce":"n","signature":"s"}', b'{"accessKey":"\xff"}'],
    )
    yield Parser(
        "message id",
        ("records/host.pyx",),
        lambda data: parse_offset_message_id(text(data)),
        [offset_message_id(("127.0.0.1", 10911), 7).encode()],
    )


def _popped() -> Iterator[Parser]:
    handle = ("records/message/pop_handle.py",)
    yield Parser(
        "handle of a popped message",
        handle,
        lambda data: PopHandle.decode(text(data)),
        [b"0 1795638471435 5000 6 0 broker-a 0 1"],
    )
    for decode, seed in (
        (pop_offsets.decode_start_offsets, b"0 3 100;1 0 7"),
        (pop_offsets.decode_message_offsets, b"0 3 100,101,105;1 0 7"),
        (pop_offsets.decode_order_counts, b"0 qo3%100 2;0 3 0"),
    ):
        yield Parser(
            decode.__name__.removeprefix("decode_").replace("_", " ") + " of a pop",
            (*handle, "records/message/pop_offsets.py"),
            lambda data, decode=decode: decode(text(data)),
            [seed],
        )


def _checked_login(data: bytes, challenge: Challenge | None) -> object:
    master = HaLogin(lambda: None, Accounts, Clock(), lambda: "store", old_form=True)
    return master.check(data, challenge)


def _columns() -> Iterator[Parser]:
    wanted = FilterCompiler().compile("TAGS = 'a' OR KEYS > 5 OR a IS NULL")

    def columns(data: bytes, records: Any = None) -> object:
        found = RecordColumns(KINDS, keep_corrupt=True, verify_crc=True, records=records)
        found.add_records(data)
        return found.take()

    yield Parser(
        "columns of records",
        ("records/columns/builder.pyx", "records/columns/column.pyx", "records/columns/row.pyx"),
        columns,
        RECORDS,
    )
    yield Parser(
        "columns of records that a filter accepts",
        (
            "records/filter/record_filter.pyx",
            "records/filter/program.pyx",
            "records/filter/numbers.pyx",
        ),
        partial(columns, records=wanted),
        RECORDS,
    )


def _pulls() -> Iterator[Parser]:
    def pulled(data: bytes) -> object:
        names = ("topic", "properties", "tags", "keys", "message_id", "born_host", "body")
        return [
            [getattr(message, name) for name in names]
            for message in PulledRecords(data, tags=["a"]).messages(MessageQueue("T", "b", 0))
        ]

    yield Parser(
        "a pull's body", ("client/received.pyx", "client/pull/pulling.py"), pulled, RECORDS
    )


def _sends() -> Iterator[Parser]:
    element = struct.pack(">iiiii", 26, 0, 0, 0, 0)[:20] + b"\0\4a\1b\2"
    named = b"RETRY_TOPIC\1T\2"
    reserved = struct.pack(">iiiiih", 22 + len(named), 0, 0, 0, 0, len(named)) + named

    def without_reserved(data: bytes) -> bytes:
        request = RemotingCommand(code=RequestCode.SEND_BATCH_MESSAGE, body=data)
        rules = ReservedProperties(lambda request, connection, topic: False)
        return rules.of_batch("T", request, cast(Connection, None))

    yield Parser(
        "batch", ("records/batches/batch_body.pyx",), batch_body.is_ordinary, [element * 2]
    )
    yield Parser(
        "batch members",
        ("records/batches/batch_body.pyx",),
        batch_body.member_properties,
        [element],
    )
    yield Parser(
        "reserved properties of a batch",
        ("broker/send/reserved_properties.py",),
        without_reserved,
        [element * 2, reserved * 2 + element],
    )
    for batch in (False, True):
        stored = partial(properties.stored, batch=batch, half=not batch)
        yield Parser(
            f"properties of a send, batch {batch}",
            ("broker/requests/properties.pyx",),
            stored,
            [b"TAGS\1a\2KEYS\1k\2", b"DELAY\0013\2TRAN_MSG\1true\2"],
        )


def _compressed() -> Iterator[Parser]:
    for kind_of in CompressionType:
        yield Parser(
            f"compressed body, {kind_of.name}",
            ("client/compression.py", "records/inflate.py"),
            partial(decompress, sys_flag=kind_of.sys_flag),
            [compress(b"compress me " * 20, kind_of)],
            inflates=INFLATED_MAX,
        )
    inflated = [zlib.compress(b"b" * 99)]
    yield Parser("zlib", ("records/inflate.py",), inflate, inflated, inflates=INFLATED_MAX)


def _routes() -> Iterator[Parser]:
    seed = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:1"},"brokerName":"b","cluster":"C"}],'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"writeQueueNums":4}],'
        b'"orderTopicConf":"b:4"}'
    )
    yield Parser(
        "route",
        ("client/transport/route.py",),
        lambda data: read_route("T", bodies.TopicRouteData.decode(data)),
        [seed],
        fields=("queueDatas", "brokerDatas", "orderTopicConf"),
        # Queues that a route of a few bytes may have.
        inflates=16 << 20,
    )


def parsers() -> Iterator[Parser]:
    """All parsers of this module."""
    for found in (_records, _popped, _columns, _pulls, _sends, _compressed, _routes):
        yield from found()
