"""The compiled check of sends and pulls, compared with the gate."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.broker.accounts.account_table import AccountTable
from congreve.broker.accounts.accounts import Account, Accounts, Perm
from congreve.broker.accounts.audit import AuditLog
from congreve.broker.accounts.gate import Gate
from congreve.broker.accounts.requests import rules
from congreve.records.message.topics import NOT_FOR_CONSUMERS
from congreve.remoting.messages.codes import SerializeType
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.signatures.hmac_sha1 import Sha1, load_sha1
from congreve.remoting.transport.peer_log import PeerLog
from congreve.remoting.wire.header_decoder import HeaderDecoder

from ..conftest import FakeConnection
from ..guarded import guarded
from ..tool import Tool
from .test_gate import PULL

SECRET = "a-secret-of-its-own"
SHORT_NAMES = tuple("abcdefghijklm")
SEND = {"a": "P", "b": "", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}


def sha1() -> Sha1:
    found = load_sha1()
    assert found is not None, "this Python's OpenSSL has SHA-1"
    return found


@given(st.binary(max_size=200), st.binary(max_size=300))
def test_the_hmac_equals_that_of_python(secret: bytes, content: bytes) -> None:
    import base64
    import hashlib
    import hmac

    expected = base64.b64encode(hmac.digest(secret, content, hashlib.sha1)).decode()
    assert sha1().hmac(secret, content) == expected


perms = st.sampled_from([Perm.DENY, Perm.PUB, Perm.SUB, Perm.PUB | Perm.SUB, Perm.DENY | Perm.SUB])
POP, ACK, CHANGE = 200_050, 200_051, 200_053
POP_AND_ACK = {
    **{"invisibleTime": "60000", "pollTime": "0", "initMode": "0", "offset": "7"},
    "extraInfo": "0 1 60000 0 0 b 0 7",
}
PRIVATE = NOT_FOR_CONSUMERS | {"C_REPLY_TOPIC"}
names = st.sampled_from(
    [
        *("T", "U", "ü", "RMQ_SYS_TRACE_TOPIC", "G", ""),
        *("%RETRY%G", "%RETRY%", "%DLQ%G", "%DLQ%"),
        *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "C_REPLY_TOPIC"),
    ]
)
groups = st.sampled_from(["G", "H", "ü"])
keys = ["first-key", "second-key", "ünlike-key"]
accounts = st.builds(
    Account,
    access_key=st.just(""),
    secret_key=st.sampled_from([SECRET, "ß" * 70]),
    admin=st.booleans(),
    default_topic_perm=perms,
    default_group_perm=perms,
    topics=st.dictionaries(names, perms, max_size=3),
    groups=st.dictionaries(groups, perms, max_size=3),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def requests(draw: st.DrawFn) -> RemotingCommand:
    """A send, pull or pop with further fields, signed or not, as one of the accounts or another."""
    code = draw(st.sampled_from([10, 310, 320, 11, 361, 14, POP, ACK, CHANGE]))
    fields = {**PULL, **POP_AND_ACK, "topic": draw(names), "consumerGroup": draw(groups)}
    kind = draw(st.sampled_from(["0", "4", "8", "12", "3"]))
    if code in (310, 320):
        fields = {**SEND, "b": draw(names), "a": draw(groups), "f": kind}
    elif code == 10:
        long_names = {"defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "sysFlag": kind}
        fields |= long_names | {"bornTimestamp": "1", "flag": "0", "producerGroup": draw(groups)}
    further = draw(st.dictionaries(texts, texts, max_size=3))
    # A short name whose value is not a number would send the header to the gate.
    fields |= {name: value for name, value in further.items() if name not in SHORT_NAMES}
    request = RemotingCommand(
        code=code,
        ext_fields=fields,
        body=draw(st.binary(max_size=80)),
        serialize_type=draw(st.sampled_from(list(SerializeType) if code < 1 << 15 else [0])),
    )
    if draw(st.integers(0, 9)):
        secret = draw(st.sampled_from([SECRET, "ß" * 70]))
        Credentials(access_key=draw(st.sampled_from(keys)), secret_key=secret).sign(request)
    if not draw(st.integers(0, 9)):
        request.ext_fields["topic"] = request.ext_fields["b"] = "T"
    return request


@settings(max_examples=4 * settings.default.max_examples)
@given(st.lists(accounts, min_size=1, max_size=3), st.lists(requests(), min_size=1, max_size=4))
def test_compiled_code_and_the_gate_allow_the_same_requests(
    made: list[Account], asked: list[RemotingCommand]
) -> None:
    import msgspec

    owners = [
        msgspec.structs.replace(each, access_key=key) for each, key in zip(made, keys, strict=False)
    ]
    known = Accounts(by_key={each.access_key: each for each in owners})
    audit = AuditLog(ManualClock())
    gate = Gate(lambda: known, rules(lambda _: None, PRIVATE), audit, PeerLog())
    table = AccountTable(sha1(), PRIVATE)
    table.replace(owners)
    assert len(table) == len(owners)
    headers = HeaderDecoder()
    for request in asked:
        allowed = gate.refusal(request, FakeConnection()) is None  # type: ignore[arg-type]
        for _ in range(2):  # then the decoder knows the header's layout
            passes = table.lets_pass(request.encode(), headers)
            assert passes == (allowed and is_compiled(request))


def is_compiled(request: RemotingCommand) -> bool:
    """Whether lanes serve such requests; for what came again the gate finds the topic."""
    came_again = request.ext_fields.get("topic", "").startswith("%RETRY%")
    return request.code != 14 and not (request.code in (ACK, CHANGE) and came_again)


async def test_compiled_code_serves_signed_sends_and_pulls(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, tools):
        await tools.of("administrator").create_topic("T")
        both = tools.of("both-of-T")
        for _ in range(20):
            assert (await both.send("T")).code == 0
        assert broker._paths is not None
        assert broker._paths.stored_by_fast_path == 19, "a handler waits for the first file"
        for sender in ("sub-of-T", "other-topic"):
            assert (await tools.of(sender).send("T")).code == 1
        assert (await tools.of("both-of-T", "a-wrong-secret").send("T")).code == 1
        assert broker.store.queues.get("T", 0).max == 20


LONG = b"l" * 9000
"""A body of several hundred blocks of SHA-1."""


async def test_a_wrong_signature_refuses_one_request_of_a_chunk(tmp_path: Path) -> None:
    import asyncio
    import random

    chance = random.Random(19)
    async with guarded(tmp_path) as (broker, tools):
        await tools.of("administrator").create_topic("T")
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        stored = 0
        for _ in range(12):
            kinds = chance.choices(["send", "long", "delayed", "pull"], (8, 1, 1, 1), k=40)
            right = [chance.random() < chance.choice((0.5, 0.95)) for _ in kinds]
            chunk = b"".join(
                asked(number, kind, SECRET if signed else "a-wrong-secret")
                for number, (kind, signed) in enumerate(zip(kinds, right, strict=True))
            )
            writer.write(chunk)
            answers = {}
            while len(answers) < len(kinds):
                head = await asyncio.wait_for(reader.readexactly(4), 30)
                rest = await reader.readexactly(int.from_bytes(head, "big"))
                answer = RemotingCommand.decode(head + rest)
                answers[answer.opaque] = answer.code
            assert [answers[number] != 1 for number in range(len(kinds))] == right
            stored += sum(
                kind in ("send", "long") for kind, ok in zip(kinds, right, strict=True) if ok
            )
        assert broker.store.queues.get("T", 0).max == stored
        writer.close()


def asked(opaque: int, kind: str, secret: str) -> bytes:
    """The bytes of a signed request."""
    properties = "DELAY\x0118\x02" if kind == "delayed" else "TAGS\x01a\x02"
    pull = PULL | {"queueOffset": "9000", "sysFlag": "0"}
    request = RemotingCommand(
        code=11 if kind == "pull" else 310,
        opaque=opaque,
        ext_fields=dict(pull) if kind == "pull" else SEND | {"b": "T", "i": properties},
        body=b"" if kind == "pull" else LONG if kind == "long" else b"short",
    )
    Credentials(access_key="both-of-T", secret_key=secret).sign(request)
    return request.encode()


async def test_a_change_of_accounts_answers_pulls_that_wait_in_a_lane(tmp_path: Path) -> None:
    import asyncio

    from ..guarded import FILE

    async with guarded(tmp_path, network_threads=1) as (broker, tools):
        admin, sub, both = (tools.of(key) for key in ("administrator", "sub-of-T", "both-of-T"))
        await admin.create_topic("T")
        await admin.send("T")
        for client in (sub, both):
            await client.heart_beat("G", "T")
            for _ in range(2):  # the loop validates the first one
                assert (await client.ask(11, PULL)).code == 0
        pulls = [asyncio.ensure_future(waiting(client)) for client in (sub, both)]
        assert broker._paths is not None
        (lane,) = broker._paths.lanes
        async with asyncio.timeout(30):
            while len(lane.pulls.polling) < 2:
                await asyncio.sleep(0.01)
        path = tmp_path / "conf" / "plain_acl.yml"
        path.write_text(FILE.replace("topicPerms: [T=SUB]", "topicPerms: [T=DENY]"))
        answer = await asyncio.wait_for(pulls[0], 30)
        assert (answer.code, "topic:T" in (answer.remark or "")) == (1, True)
        assert (await asyncio.wait_for(pulls[1], 30)).code == 19  # the client pulls again
        assert (await admin.send("T", b"news")).code == 0
        assert b"news" in (await waiting(both)).body
        assert (await waiting(sub)).code == 1


async def waiting(tool: Tool) -> RemotingCommand:
    return await tool.ask(11, PULL | {"queueOffset": "1"})


async def test_an_expired_signed_pull_is_answered(tmp_path: Path) -> None:
    async with guarded(tmp_path, network_threads=1) as (_, tools):
        both = tools.of("both-of-T")
        await tools.of("administrator").create_topic("T")
        await both.send("T")
        await both.heart_beat("G", "T")
        short = PULL | {"queueOffset": "1", "suspendTimeoutMillis": "50"}
        assert [(await both.ask(11, short)).code for _ in range(4)] == [19] * 4
        # The signature, which covers a body, is verified again.
        assert [(await both.ask(11, short, b"x")).code for _ in range(4)] == [19] * 4
