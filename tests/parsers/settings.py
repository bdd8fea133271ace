"""Parsers of expressions, settings and options."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from congreve.base import properties
from congreve.base.errors import CongreveError
from congreve.broker.accounts.addresses import AddressPattern
from congreve.broker.broker_conf import parse_config
from congreve.broker.log_levels import parse_log_levels
from congreve.broker.metadata import subscription
from congreve.broker.metadata.attributes import TOPIC_ATTRIBUTES, changed, parse_changes
from congreve.broker.quotas.quota_file import parse_quotas
from congreve.console.top.figures import parse_varz
from congreve.engine.config import parse_delay_levels, parse_hours
from congreve.records.filter.syntax import FilterCompiler
from congreve.remoting.messages.addresses import parse_name_servers
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.listeners import parse_addresses
from congreve.remoting.messages.table_pages import read_page_request
from congreve.spark.offsets import parse_offsets, parse_timestamps
from congreve.spark.options import parse as parse_options

from .parser import Parser, text

PAGE_FIELDS = ("topicSeq", "maxTopicNum", "dataVersion")


def _attributes() -> Iterator[Parser]:
    yield Parser(
        "attributes",
        ("broker/metadata/attributes.py",),
        lambda data: changed({}, parse_changes(text(data)), TOPIC_ATTRIBUTES),
        [b"+message.type=FIFO,+reserve.time=7", b"-message.type"],
    )


def parsers() -> Iterator[Parser]:
    """All parsers of this module."""
    yield from _attributes()
    compiler = FilterCompiler()
    yield Parser(
        "SQL92",
        ("records/filter/syntax.py", "records/filter/program.pyx"),
        lambda data: compiler.compile(text(data)),
        [b"a > 5 AND (b IN ('x', 'y') OR NOT c IS NULL)", b"a BETWEEN 1.5 AND 2e3 OR d = TRUE"],
        slowness=4,
    )
    yield Parser(
        "tags",
        ("broker/metadata/subscription.py",),
        lambda data: subscription.tag_codes_of(text(data)),
        [b"a || b", b"*"],
        (ValueError,),
    )
    yield Parser(
        "broker.conf",
        (
            "base/properties.py",
            "broker/config.py",
            "broker/broker_conf.py",
            "base/settings.py",
        ),
        lambda data: parse_config(text(data), "broker.conf"),
        [b"brokerName = b\n# no\nlistenPort: 10911\nx=\\u0041\\\n  y\n"],
    )
    yield from _for_operators()
    yield Parser(
        "white addresses",
        ("broker/accounts/addresses.py",),
        lambda data: AddressPattern.parse(text(data)).matches("10.0.0.1"),
        [b"10.1.2.{1,2}", b"10.1.2.3-9,fe80::*", b"1050::5:600:300c:1-20:*"],
    )
    yield Parser(
        "name server settings",
        ("namesrv/config.py", "base/properties.py"),
        lambda data: properties.values(text(data)),
        [b"orderMessageEnable=true\n"],
    )
    for name, parse, seed in (
        ("delay levels", parse_delay_levels, b"1s 5s 10m 2h"),
        ("hours", parse_hours, b"04;05"),
    ):
        yield Parser(
            name,
            ("engine/config.py",),
            lambda data, parse=parse: parse(text(data)),
            [seed],
            (ValueError, CongreveError),
        )
    for name, offsets in (("offsets", parse_offsets), ("timestamps", parse_timestamps)):
        yield Parser(
            f"{name} of Spark",
            ("spark/offsets.py",),
            lambda data, offsets=offsets: offsets("x", msgspec.json.decode(data)),
            [b'{"T":{"b":{"0":1}}}'],
            (CongreveError, msgspec.DecodeError, UnicodeDecodeError, RecursionError),
        )
    yield Parser(
        "options of Spark",
        ("spark/options.py",),
        lambda data: parse_options(
            {"nameServers": "a:1", "topic": "T", "startingOffsets": text(data)}, streaming=False
        ),
        [b'{"T":{"b":{"0":1}}}', b"earliest"],
    )


def _for_operators() -> Iterator[Parser]:
    yield Parser(
        "quotas.yml",
        ("broker/quotas/quota_file.py", "broker/quota_limits.py"),
        parse_quotas,
        [b"topic:\n  T: {sendMessages: 5}\naddress: {'*': {pullBytes: 1}}\n"],
        inflates=16 << 20,  # the YAML library nests calls as deep as Python lets it
        slowness=10,
    )
    yield Parser(
        "listeners",
        ("remoting/messages/listeners.py",),
        lambda data: parse_addresses(text(data)),
        [b"outside=203.0.113.5:10921,inside=10.0.0.5:10911", b"a=[fe80::1]:1;b=host:2"],
    )
    yield Parser(
        "page of a table",
        ("remoting/messages/table_pages.py",),
        lambda data: read_page_request(
            RemotingCommand(
                code=21, ext_fields=dict(zip(PAGE_FIELDS, text(data).split("|"), strict=False))
            )
        ),
        [b'2000|1000|{"counter":1,"timestamp":2}', b"0||"],
    )
    yield Parser(
        "addresses of name servers",
        ("remoting/messages/addresses.py",),
        lambda data: parse_name_servers(text(data)),
        [b"10.0.0.1:9876;[fe80::1]:9876; mq.example:1", b"http://a:1,b:2", b"10.0.0.1"],
    )
    yield Parser(
        "log levels",
        ("broker/log_levels.py",),
        lambda data: parse_log_levels(text(data)),
        [b"INFO", b"congreve.broker=DEBUG;congreve.engine=INFO"],
    )
    yield Parser(
        "/varz",
        ("console/top/figures.py",),
        parse_varz,
        [
            b'{"broker":"b","address":"a:1","role":"SLAVE","trouble":null,"waitingAnswers":0,'
            b'"waitingPulls":0,"diskBytes":9,"diskFreeBytes":1,"topics":[{"topic":"T"}],'
            b'"groups":[{"group":"G","topic":"T","lag":1}],"runtime":{"a":1}}',
            b'{"broker":"\xff"}',  # invalid UTF-8 in a text
        ],
    )
