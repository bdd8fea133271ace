"""Every request code with every kind of sender; the expected results are listed, not computed."""

from pathlib import Path

import msgspec
import pytest

from congreve.broker.accounts.requests import REQUESTS, rules
from congreve.broker.broker import Broker
from congreve.broker.errors import BrokerError
from congreve.broker.figures.put_times import COMPILED, NO_REQUESTS, requests_of
from congreve.records.message.message import Record
from congreve.records.record import decode_record
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.header import Header

from ..guarded import SECRET, Tools, guarded
from ..tool import Tool, config_of, running

ADMIN = {"administrator"}
PUB = ADMIN | {"both-of-T", "pub-of-T"}
SUB = ADMIN | {"both-of-T", "sub-of-T"}
EITHER = PUB | SUB
SIGNED = EITHER | {"other-topic"}
EXPECTED = {
    **dict.fromkeys((10, 310, 320, 324, 325, 37), PUB),
    **dict.fromkeys((11, 361, 12, 14, 15, 33, 34, 35, 36, 38, 41, 42, 46, 400), SUB),
    **dict.fromkeys((200_050, 200_051, 200_053, 200_054, 200_055, 200_151), SUB),
    **dict.fromkeys((203, 208, 303, 321, 352), SUB),
    **dict.fromkeys((29, 30, 31, 32, 202, 351), EITHER),
    105: SIGNED,
}
"""The accounts that may pass, by code; all other codes are for administrators."""

SUBSCRIPTION = {"topic": "T", "subString": "*", "subVersion": 1, "tagsSet": []}
BODIES = {
    34: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [SUBSCRIPTION]}],
    },
    41: {
        "consumerGroup": "G",
        "clientId": "c",
        "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}],
    },
    46: {"clientId": "c", "group": "G", "subscriptionData": SUBSCRIPTION},
}
BODIES[42] = BODIES[41]
BODIES[400] = {"topic": "T", "consumerGroup": "G", "clientId": "c"}
BODIES[200_151] = {"acks": [{"c": "G", "t": "T", "r": "1"}]}
SENDS = {
    10: {
        **{"producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "queueId": "0"},
        **{"defaultTopicQueueNums": "4", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"},
    },
    310: {
        **{"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"},
        "i": "KEYS\x01k",
    },
}
PULL = {"commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*"}
"""Complete sends and pulls: compiled code serves those that it lets pass."""


def fields_of(code: int, message: Record, half: Record) -> dict[str, str]:
    """Fields that name topic T and group G; requests of administrators get none."""
    if code not in EXPECTED:
        return {}
    named = {"topic": "T", "b": "T", "group": "G", "consumerGroup": "G", "clientID": "c"}
    numbers = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0"}
    if code == 37:
        return {
            "producerGroup": "P",
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": "8",
            "msgId": "x",
        }
    if code in SENDS:
        return SENDS[code]
    if code in (11, 361):
        numbers = numbers | PULL
    return named | numbers | {"offset": str(message.physical_offset), "delayLevel": "1"}


def is_refused(answer: RemotingCommand) -> bool:
    """Whether the gate refused the request, and not its handler."""
    return (answer.remark or "").startswith(("AclException", "no message at"))


async def stored(broker: Broker, admin: Tool) -> tuple[Record, Record]:
    """A message of topic T and a half message for T."""
    await admin.create_topic("T")
    await admin.create_topic("U")
    await admin.heart_beat("G", "T")
    half_fields = {
        "producerGroup": "P",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "4",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": "PGROUP\x01P\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01u",
    }
    first = broker.store.log.max_offset
    assert (await admin.send("T")).code == 0
    second = broker.store.log.max_offset
    assert (await admin.ask(10, half_fields, b"half")).code == 0
    found = [broker.store.read(offset) for offset in (first, second)]
    message, half = (decode_record(view) for view in found if view is not None)
    assert half.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    return message, half


async def passed(tools: Tools, code: int, fields: dict[str, str], senders: list[str]) -> set[str]:
    """The senders whose request was not refused."""
    body = fastjson.dumps(BODIES[code]).encode() if code in BODIES else b""
    body = b"x" if code in SENDS else body
    through = set()
    for sender in senders:
        answer = await tools.of(sender).ask(code, fields, body)
        if not is_refused(answer):
            through.add(sender)
    for tool in (tools.of(None), tools.of("both-of-T", SECRET + "x"), tools.of("unknown-key")):
        answer = await tool.ask(code, fields, body)
        assert (answer.code, is_refused(answer)) == (1, True), code
        assert not answer.body
    return through


async def test_every_code_accepts_accounts_with_the_permission(tmp_path: Path) -> None:
    async with guarded(tmp_path, answer_route_requests=True) as (broker, tools):
        admin = tools.of("administrator")
        message, half = await stored(broker, admin)
        handled = set(broker.ports.server.handlers)
        assert handled == {row.code for row in REQUESTS} and set(EXPECTED) <= handled
        # Administrators come last, because their requests are carried out.
        senders = ["other-topic", "sub-of-T", "pub-of-T", "both-of-T", "administrator"]
        wrong = {}
        for code in sorted(handled):
            fields = fields_of(code, message, half)
            through = await passed(tools, code, fields, senders)
            if through != EXPECTED.get(code, ADMIN):
                wrong[RequestCode(code).name] = through
        assert not wrong


async def test_a_code_without_a_row_prevents_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_pulls(find, private):
        return {code: rule for code, rule in rules(find, private).items() if code != 11}

    monkeypatch.setattr("congreve.broker.accounts.access_control.rules", without_pulls)
    with pytest.raises(BrokerError, match=r"without a rule: \[11\]"):
        async with guarded(tmp_path):
            pass


async def test_each_request_has_the_header_of_its_row(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, answer_route_requests=True)) as (tool, _):
        wrong = {}
        for row in REQUESTS:
            if row.header is not None and has_required_fields(row.header):
                answer = await tool.ask(row.code)
                if f"{row.header.__name__}: the field" not in (answer.remark or ""):
                    wrong[row.code.name] = answer.remark
        assert not wrong


def has_required_fields(header: type[Header]) -> bool:
    return any(field.required for field in msgspec.structs.fields(header))


def test_compiled_paths_serve_requests_of_the_table() -> None:
    counted = {code for code, _ in COMPILED}
    assert counted <= {row.code for row in REQUESTS}
    assert requests_of(RequestCode.PULL_MESSAGE) == NO_REQUESTS
    for rpc, (code, _) in enumerate(COMPILED[:4]):
        assert [*requests_of(code)].index(1) == rpc
