"""Ways to damage a state file: cuts, flipped bits, texts that no program here writes."""

from __future__ import annotations

import random
from collections.abc import Iterator

#: Texts for any file: what a failing disk or another program may leave.
TEXTS: dict[str, bytes] = {
    "empty": b"",
    "zeros": bytes(4096),
    "blanks": b" \r\n\t",
    "no UTF-8": b"\xff\xfe\x00\x80",
    "byte order mark": b"\xef\xbb\xbf{}",
    "half a brace": b"{",
    "null": b"null",
    "list": b"[]",
    "number": b"1",
    "minus nothing": b"-",
    "text": b'"x"',
    "object": b"{}",
    "object in a list": b"[{}]",
    "strange keys": b'{"{x}":1,"\\"":2,"\\\\":3,"$ref":"$","@type":"java.lang.Runtime"}',
    "lone surrogate": b'{"a":"\\ud800"}',
    "not a number": b'{"a":NaN,"b":1e999,"c":-Infinity}',
    "huge number": b'{"a":' + b"9" * 400 + b"}",
    "deep lists": b"[" * 50_000,
    "deep objects": b'{"a":' * 50_000,
    "deep keys": b"{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{",
    "references": b'{"a":[1,2],"b":{"$ref":"$.a"},"c":{"$ref":"$"}}',
}

NUMBERS = ("-1", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e400")
NAMES = ("{x}", '\\"', "\\\\", "$ref", "@type", "名", "a/b", "..", "x" * 256, "", "a@b@c")


#: Texts in the shape of each file, with a name and a number in each of their places.
SHAPES: dict[str, str] = {
    "topics.json": '{"topicConfigTable":{"NAME":{"topicName":"NAME","readQueueNums":NUMBER,'
    '"writeQueueNums":NUMBER,"perm":NUMBER,"topicSysFlag":NUMBER}},'
    '"dataVersion":{"counter":NUMBER,"timestamp":NUMBER}}',
    "subscriptionGroup.json": '{"subscriptionGroupTable":{"NAME":{"groupName":"NAME",'
    '"retryQueueNums":NUMBER,"retryMaxTimes":NUMBER,"brokerId":NUMBER}},'
    '"dataVersion":{"counter":NUMBER,"timestamp":NUMBER}}',
    "consumerOffset.json": '{"offsetTable":{"NAME":{NUMBER:NUMBER},"Shared@NAME":{0:NUMBER},'
    '"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:NUMBER},'
    '"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:NUMBER}}}',
    "consumerFilter.json": '{"filterDataByTopic":{"NAME":{"topic":"NAME","groupFilterData":{'
    '"NAME":{"consumerGroup":"NAME","topic":"NAME","expression":"a > NUMBER",'
    '"expressionType":"SQL92","bornTime":NUMBER,"deadTime":NUMBER,"clientVersion":NUMBER}}}}}',
    "delayOffset.json": '{"offsetTable":{1:NUMBER,2:NUMBER,NUMBER:1}}',
    "deletedTopics.json": '{"topics":{"NAME":NUMBER},"madeAgain":{"NAME":NUMBER,"Shared":NUMBER}}',
    "kvConfig.json": '{"configTable":{"NAME":{"NAME":NUMBER,"k":"NAME"}}}',
    "congreve-broker.conf": "NAME=NUMBER\nlistenPort=NUMBER\nbrokerName=NAME\n",
    "transactionChecks.json": '{"checks":{0:NUMBER,NUMBER:1}}',
    "tuned.json": '{"ioBackend":"NAME","flushDiskType":"NAME","reason":"NUMBER"}',
    "queues.json": '{"end":NUMBER,"NAME":NUMBER}',
    "index.json": '{"end":NUMBER,"NAME":NUMBER}',
    "timer.json": '{"runs":[{"name":"NAME","NAME":NUMBER}],"bound":NUMBER,"rows":[[NUMBER]]}',
}


def shaped(name: str) -> Iterator[tuple[str, bytes]]:
    """Texts for the file of this name."""
    shape = SHAPES.get(name)
    if shape is None:
        return
    for number in NUMBERS:
        yield f"number {number}", shape.replace("NUMBER", number).replace("NAME", "Odd").encode()
    for odd in NAMES:
        yield f"name {odd[:8]!r}", shape.replace("NUMBER", "1").replace("NAME", odd).encode()


def cut(text: bytes, chance: random.Random, times: int) -> Iterator[tuple[str, bytes]]:
    """The first bytes alone, and the first bytes with zeros after them."""
    for at in chance.sample(range(len(text)), min(times, len(text))):
        yield f"cut at {at}", text[:at]
        yield f"zeros from {at}", text[:at] + bytes(len(text) - at)


def flipped(text: bytes, chance: random.Random, times: int) -> Iterator[tuple[str, bytes]]:
    for bit in chance.sample(range(len(text) * 8), min(times, len(text) * 8)):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit}", bytes(damaged)


def damages(
    name: str, text: bytes, chance: random.Random, times: int
) -> Iterator[tuple[str, bytes]]:
    """The damages of one file: all texts, and `times` cuts and flipped bits."""
    yield from TEXTS.items()
    yield from shaped(name)
    yield from cut(text, chance, times)
    yield from flipped(text, chance, times)
