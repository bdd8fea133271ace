"""Parsers of the web console: reports of brokers, bodies of messages, logs, headers of browsers."""

from __future__ import annotations

from collections.abc import Iterator

from congreve.client.observability.trace import trace_record
from congreve.client.observability.trace_reader import read_trace
from congreve.console.web.audit import audit_entry
from congreve.console.web.formats import body_hex, body_json, body_text, preview
from congreve.console.web.serving.security import host_name
from congreve.console.web.snapshot import parse_lags
from congreve.remoting.messages.admin_bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper
from congreve.remoting.messages.body import MessageQueue

from .parser import Parser, text


def parsers() -> Iterator[Parser]:
    """All of them."""
    queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
    offsets = OffsetWrapper(broker_offset=9, consumer_offset=1, last_timestamp=5)
    stats = ConsumeStats(offset_table={queue: offsets}, consume_tps=1.0)
    report = ConsumeStatsList(consume_stats_list=[{"G": [stats]}], total_diff=8)
    yield Parser(
        "progress of all groups", ("console/web/snapshot.py",), parse_lags, [report.encode()]
    )
    yield Parser(
        "a shown body",
        ("console/web/formats.py",),
        lambda data: (body_text(data), body_json(data), body_hex(data), preview(data)),
        [b'{"a":[1,2]}', b"text", "ü\u202e".encode()],
    )
    yield Parser(
        "a line of the audit log",
        ("console/web/audit.py",),
        audit_entry,
        [b'x {"time":1,"accessKey":"a","request":"r","fields":{}}'],
    )
    yield Parser(
        "Host",
        ("console/web/serving/security.py",),
        lambda data: host_name(text(data)),
        [b"127.0.0.1:8080", b"[::1]:80"],
    )
    sent = ("Pub", 1, "r", "g", "t", "id", "a", "k", "h:1", 5, 7, 0, "offset-id", True)
    ended = ("EndTransaction", 1, "r", "g", "t", "id", "a", "k", "h:1", 2, "tx", "UNKNOW", False)
    records = trace_record(*sent) + trace_record(*ended)
    yield Parser(
        "trace",
        ("client/observability/trace_reader.py",),
        read_trace,
        [
            records.encode(),
            trace_record("SubBefore", 1, "r", "g", "request", "id", 0, "k").encode(),
            trace_record("SubAfter", "request", "id", 1, True, "k", 0, 9, "g").encode(),
        ],
    )
