"""Parsers of frames, headers and bodies."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy

from congreve.base.clock import ManualClock
from congreve.base.errors import CongreveError
from congreve.broker.accounts.account_table import AccountTable
from congreve.broker.accounts.accounts import Account, Perm
from congreve.broker.metadata.attributes import TOPIC_ATTRIBUTES, changed, parse_changes
from congreve.broker.pop.lanes.acks import LaneAcks
from congreve.engine.pop.in_flight import InFlight
from congreve.engine.pop.limits import PopLimits
from congreve.remoting.messages import (  # noqa: F401 - all headers
    admin_headers,
    bodies,
    fastjson,
    headers,
    pop_bodies,
    pop_headers,
)
from congreve.remoting.messages.body import Body
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.header import Header
from congreve.remoting.messages.register_body import read_registration, write_registration
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.signatures.hmac_sha1 import load_sha1
from congreve.remoting.wire import codec, frame
from congreve.remoting.wire.header_decoder import HeaderDecoder

from .parser import Parser, field_names, text

SEND_FIELDS = {
    **{"a": "producer", "b": "Topic", "c": "TBW102", "d": "4", "e": "1", "f": "0"},
    **{"g": "1700000000000", "h": "0", "i": "TAGS\x01a\x02KEYS\x01k\x02", "j": "0", "m": "false"},
}
COMMANDS = [
    RemotingCommand(code=310, ext_fields=SEND_FIELDS, body=b"body", serialize_type=form).encode()
    for form in (0, 1)
] + [
    RemotingCommand(code=0, flag=1, remark='r"\\\n', serialize_type=form).encode()
    for form in (0, 1)
]

ACK_BATCH = (
    b'{"acks":[{"b":"BQ==","c":"G","it":60000,"pt":5,"q":0,"r":"0","rq":0,"so":0,"t":"T"}],'
    b'"brokerName":"b"}'
)
ACK_FIELDS = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "extraInfo": "0 1700000000000 60000 0 0 broker-a 0 5",
    "offset": "5",
    "invisibleTime": "60000",
}


def _frame(mark: int, header: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header), mark << 24 | len(header)) + header


def _header_of(mark: int, data: bytes) -> bytes:
    return _frame(mark, data[: (1 << 24) - 1])


def _wire() -> Iterator[Parser]:
    decoder = HeaderDecoder()
    json_seeds = [b'{"code":10,"extFields":{"a":"1","b":true,"c":{"d":[]}},"opaque":1}']
    heads = [each[8 : 8 + int.from_bytes(each[5:8], "big")] for each in COMMANDS]
    json_seeds, binary_seeds = json_seeds + heads[::2], heads[1::2]
    command = ("remoting/messages/command.py", "remoting/wire/codec.pyx", "remoting/wire/frame.pyx")
    yield Parser("frames", ("remoting/wire/frame.pyx",), frame.split, COMMANDS)
    yield Parser("commands", command, RemotingCommand.decode, COMMANDS)
    yield Parser("commands in Python", command, RemotingCommand.decode_any, COMMANDS)
    yield Parser("commands in compiled code", ("remoting/wire/codec.pyx",), codec.decode, COMMANDS)
    yield Parser(
        "commands of a stream",
        command,
        lambda data: RemotingCommand.read(io.BufferedReader(io.BytesIO(data))),
        COMMANDS,
        (CongreveError, ConnectionError),
    )
    for form, seeds in ((0, json_seeds), (1, binary_seeds)):
        for name, parse in (
            ("", RemotingCommand.decode),
            (", remembered", decoder.head),
            (" of sends", decoder.send),
            (" of pulls", decoder.pull),
            (" of pops", decoder.pop),
        ):
            yield Parser(
                f"{('JSON', 'binary')[form]} headers{name}",
                (*command, "remoting/wire/header_decoder.pyx", "remoting/wire/fast_headers.pyx"),
                lambda data, form=form, parse=parse: parse(_header_of(form, data)),
                seeds,
                fields=("extFields", "code", "remark", "x") if form == 0 and not name else (),
            )
    pops = InFlight(PopLimits())
    pops.window("G", "T", 0, 0).take(numpy.arange(0, 9), 9, 5, 60_000)
    yield Parser(
        "acknowledgements in lanes",
        (
            *("broker/pop/lanes/acks.pyx", "broker/pop/lanes/batch_body.pyx"),
            "remoting/wire/fast_headers.pyx",
        ),
        LaneAcks(pops, ManualClock()).take,
        [
            *(
                RemotingCommand(code=code, ext_fields=dict(ACK_FIELDS)).encode()
                for code in (200_051, 200_053)
            ),
            RemotingCommand(code=200_151, body=ACK_BATCH).encode(),
        ],
    )
    yield Parser("fastjson", ("remoting/messages/fastjson.py",), fastjson.loads, json_seeds)


def _signed() -> Iterator[Parser]:
    """Sends as lanes check them, in the layout of the seeds and in others."""
    sha1, decoder = load_sha1(), HeaderDecoder()
    assert sha1 is not None
    key, secret = "account", "secret-of-it"
    table = AccountTable(sha1)
    table.replace([Account(access_key=key, secret_key=secret, default_topic_perm=Perm.PUB)])
    seeds = []
    for form in (0, 1):
        request = RemotingCommand(
            code=310, ext_fields=dict(SEND_FIELDS), body=b"b" * 20, serialize_type=form
        )
        Credentials(access_key=key, secret_key=secret).sign(request)
        seeds.append(request.encode())
    assert all(table.lets_pass(seed, HeaderDecoder()) for seed in seeds)
    modules = (
        "broker/accounts/account_table.pyx",
        "remoting/wire/signed_fields.pyx",
    )
    yield Parser("signed sends", modules, lambda data: table.lets_pass(data, decoder), seeds)


def _subclasses(cls: type) -> Iterator[type]:
    for found in cls.__subclasses__():
        yield found
        yield from _subclasses(found)


def _typed_headers() -> Iterator[Parser]:
    for cls in sorted(_subclasses(Header), key=lambda found: found.__name__):
        names = cls.__struct_encode_fields__

        def parse(data: bytes, cls: Any = cls, names: Any = names) -> object:
            texts = text(data).split(",", len(names) - 1) if names else []
            fields = dict(zip(names, texts, strict=False))
            return cls.read(RemotingCommand(code=1, ext_fields=fields))

        seed = b",".join([b"1"] * len(names))
        yield Parser(f"header {cls.__name__}", ("remoting/messages/header.py",), parse, [seed, b""])


def _typed_bodies() -> Iterator[Parser]:
    for cls in sorted(_subclasses(Body), key=lambda found: found.__name__):
        yield Parser(
            f"body {cls.__name__}",
            (
                "remoting/messages/body.py",
                "remoting/messages/bodies.py",
                "remoting/messages/fastjson.py",
                "remoting/messages/pop_bodies.py",
            ),
            cls.decode,
            [b'{"%s":{"a":1},"x":null}' % name.encode() for name in field_names(cls)] or [b"{}"],
            fields=field_names(cls),
        )
    yield Parser(
        "changes of attributes",
        ("broker/metadata/attributes.py",),
        lambda data: changed({}, parse_changes(text(data)), TOPIC_ATTRIBUTES),
        [b"+message.type=FIFO,+reserve.time=60000", b"-reserve.time"],
    )
    acks = b'{"acks":[{"c":"g","t":"T","b":"BQ=="},{"consumerGroup":"g","bitSet":"BQ=="}]}'
    yield Parser(
        "offsets of a batch of acknowledgements",
        ("remoting/messages/pop_bodies.py",),
        lambda data: [
            sum(ack.offsets(0, len(data)))
            for ack in pop_bodies.BatchAckMessageRequestBody.decode(data).acks
        ],
        [acks],
        fields=("acks",),
    )
    topics = {"T": bodies.TopicConfig(topic_name="T"), "U": bodies.TopicConfig(topic_name="U")}
    wrapper = bodies.TopicConfigSerializeWrapper(topic_config_table=topics)
    whole = bodies.RegisterBrokerBody(
        topic_config_serialize_wrapper=wrapper, filter_server_list=["a:1"]
    )
    packed = write_registration(whole, compressed=True)
    registration = partial(Parser, modules=("remoting/messages/register_body.py",))
    yield registration(
        "registration, inflated",
        parse=lambda data: read_registration(zlib.compress(data, 1), 401, compressed=True),
        seeds=[zlib.decompress(packed)],
    )
    yield registration(
        "registration, compressed",
        parse=lambda data: read_registration(data, 401, compressed=True),
        seeds=[packed],
        inflates=1 << 20,
    )
    for version in (30, 401):
        yield registration(
            f"registration of version {version}",
            parse=lambda data, version=version: read_registration(data, version, compressed=False),
            seeds=[write_registration(whole, compressed=False), wrapper.encode()],
        )


def parsers() -> Iterator[Parser]:
    """All parsers of this module."""
    yield from _wire()
    yield from _signed()
    yield from _typed_headers()
    yield from _typed_bodies()
