"""Where brokers keep messages of other topics, their real topic decides on readers."""

from pathlib import Path
from typing import cast

from congreve.broker.broker import Broker
from congreve.broker.group.clients import Channel, ClientChannel
from congreve.records.message.message import Record
from congreve.records.record import decode_record
from congreve.remoting.messages.command import RemotingCommand

from ..guarded import SECRET, guarded
from ..tool import PULL_FIELDS, Tool

FILE = f"""
accounts:
- accessKey: administrator
  secretKey: {SECRET}
  admin: true
- accessKey: reader-of-all-but-one
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [secret=DENY]
- accessKey: operator-of-G
  secretKey: {SECRET}
  topicPerms: [secret=SUB]
  groupPerms: [G=SUB]
"""
BODY = b"the secret"
PRIVATE = {
    "SCHEDULE_TOPIC_XXXX": 17,
    "rmq_sys_wheel_timer": 0,
    "RMQ_SYS_TRANS_HALF_TOPIC": 0,
    "TRANS_CHECK_MAX_TIME_TOPIC": 0,
    "C_REPLY_TOPIC": 0,
}
"""Where the broker keeps messages of others, and the queue there."""
DEAD = "%DLQ%G"
READS = {
    11: PULL_FIELDS,
    361: PULL_FIELDS,
    12: {},
    29: {},
    30: {},
    31: {},
    32: {},
    202: {},
    321: {},
}
FIELDS = {
    **{"group": "G", "consumerGroup": "G", "timestamp": "0", "index": "0", "count": "9"},
    **{"key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62)},
}


async def stored(broker: Broker, admin: Tool) -> list[Record]:
    """A message of topic `secret` in each of those topics."""
    for topic in ("secret", DEAD):
        await admin.create_topic(topic)
    await admin.heart_beat("G", "secret")
    in_an_hour = broker.managers.clock.now() + 3_600_000
    half = "PGROUP\x01P\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01u"
    for properties in ("DELAY\x0118", f"TIMER_DELIVER_MS\x01{in_an_hour}", half):
        flag = 4 if properties is half else 0
        text = "KEYS\x01k\x02" + properties
        assert (await admin.send("secret", BODY, sys_flag=flag, properties=text)).code == 0
    for topic in PRIVATE:
        broker.managers.metadata.topics.create_internal(topic, 1)
    for topic in ("TRANS_CHECK_MAX_TIME_TOPIC", "C_REPLY_TOPIC", DEAD):
        real = {"REAL_TOPIC": "secret", "KEYS": "k"} if topic[0] == "T" else {"KEYS": "k"}
        broker.store.put(Record(topic=topic, body=BODY, properties=real, queue_id=0))
    found = []
    for topic, queue_id in {**PRIVATE, DEAD: 0}.items():
        queue = broker.store.queues.get(topic, queue_id)
        view = broker.store.read(queue[0][0])
        assert view is not None
        found.append(decode_record(view))
    return found


def is_refused(answer: RemotingCommand) -> bool:
    return answer.code == 1 and "AclException" in (answer.remark or "") and not answer.body


async def reads(tool: Tool, topic: str, queue_id: int) -> dict[int, RemotingCommand]:
    of_topic = {"topic": topic, "queueId": str(queue_id)}
    return {code: await tool.ask(code, FIELDS | more | of_topic) for code, more in READS.items()}


async def test_only_administrators_read_where_messages_of_others_are(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, FILE) as (broker, tools):
        admin, reader = tools.of("administrator"), tools.of("reader-of-all-but-one")
        records = await stored(broker, admin)
        assert not is_refused((await reads(reader, "another", 0))[11]), "it reads what is open"
        for topic, queue_id in {**PRIVATE, DEAD: 0, "secret": 0}.items():
            for code, answer in (await reads(reader, topic, queue_id)).items():
                # An account that may send to dead letters gets the ends of their queues, too.
                of_queue = topic == DEAD and code in (29, 30, 31, 32, 202)
                assert is_refused(answer) != of_queue, (topic, code, answer.remark)
            if topic != "secret":
                assert BODY in (await reads(admin, topic, queue_id))[11].body, topic
        for record in records:
            answer = await reader.ask(33, {"offset": str(record.physical_offset)})
            assert is_refused(answer), record.topic


async def test_dead_letters_are_read_by_whom_their_group_is_given_to(tmp_path: Path) -> None:
    async with guarded(tmp_path, FILE) as (broker, tools):
        records = await stored(broker, tools.of("administrator"))
        operator = tools.of("operator-of-G")
        assert BODY in (await reads(operator, DEAD, 0))[11].body
        seen = await views(operator, records)
        assert seen == {*PRIVATE, DEAD} - {"C_REPLY_TOPIC"}, "their real topic is `secret`"


async def views(tool: Tool, records: list[Record]) -> set[str]:
    """The topics whose message the account sees by id."""
    seen = set()
    for record in records:
        if not is_refused(await tool.ask(33, {"offset": str(record.physical_offset)})):
            seen.add(record.topic)
    return seen


async def test_replies_are_sent_as_before(tmp_path: Path) -> None:
    async with guarded(tmp_path, FILE) as (_, tools):
        reader = tools.of("reader-of-all-but-one")
        assert not is_refused(await reader.send("C_REPLY_TOPIC", BODY))


class Peer:
    """A connection that is not there."""

    peer = ("127.0.0.1", 1)


async def test_only_grpc_clients_get_checks_of_transactions_without_a_group(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, _):
        may_check = broker.managers.members.producers.may_check

        def member(*, is_grpc: bool) -> ClientChannel:
            connection = cast("Channel", Peer())
            return ClientChannel(
                *(connection, "c", "JAVA", 1), access_key="pub-of-T", is_grpc=is_grpc
            )

        assert may_check(member(is_grpc=False), "P", "T")
        assert not may_check(member(is_grpc=False), "T", "T")  # the group T is another's
        assert may_check(member(is_grpc=True), "T", "T")
        assert not may_check(member(is_grpc=True), "U", "U")
