"""Compiled sends and pulls do the same as the Python handlers: the main port is compared with the
VIP port, which has only the handlers."""

import asyncio
import re
import struct
from pathlib import Path

import pytest
from harness.servers import free_port

from congreve.broker.broker import Broker
from congreve.broker.broker_conf import load_config
from congreve.broker.config import BrokerConfig
from congreve.engine.config import StoreConfig
from congreve.records.record import decode_record, decode_records, string_hash
from congreve.remoting.messages.codes import SerializeType
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..tool import TOPIC_FIELDS

CREATE = TOPIC_FIELDS | {"readQueueNums": "2", "writeQueueNums": "2"}
SLACK_MS = 5_000  # between two sends of the same message
LONG = {
    "producerGroup": "P",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "1700000000123",
    "flag": "7",
    "properties": "KEYS\x01k\x02WAIT\x01true\x02TAGS\x01\u00e4\U0001f600\x02UNIQ_KEY\x01U",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
}
SHORT = dict(zip("abcdefghijkm", LONG.values(), strict=True))


def batch_body(*members: tuple[bytes, bytes]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 3, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for body, properties in members
    )


PARKED = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
# Requests that test_generated_requests.py does not have: limits, answers that depend on others.
SENDS = {
    "long names": (10, LONG, b"body"),
    "any queue": (310, SHORT | {"e": "-1"}, b"body"),
    "an unknown topic": (310, SHORT | {"b": "made-on-send"}, b"body"),
    "a level above the highest": (310, SHORT | {"i": "DELAY\x01999\x02WAIT\x01true"}, b"body"),
    "s from now": (310, SHORT | {"i": "TIMER_DELAY_SEC\x0186400"}, b"body"),
    "a deliver time too far": (310, SHORT | {"i": "TIMER_DELAY_SEC\x013456001"}, b"body"),
    "a deliver time beyond all": (310, SHORT | {"i": f"TIMER_DELAY_SEC\x01{9**18}"}, b"body"),
    "a delay over the limit of properties": (
        310,
        SHORT | {"i": "DELAY\x013\x02k\x01" + "v" * 32_750},
        b"body",
    ),
    "a body over the limit": (310, SHORT, b"x" * 4097),
    "properties over the limit": (310, SHORT | {"i": "k\x01" + "v" * 32_766}, b"body"),
    "a batch": (
        320,
        SHORT | {"m": "true", "i": "WAIT\x01true"},
        batch_body((b"one", b"TAGS\x01a"), (b"", b""), (b"three", b"KEYS\x01k\x02")),
    ),
    "a batch that breaks off": (320, SHORT | {"m": "true"}, batch_body((b"one", b""))[:-1]),
}


def config_of(root: Path, flush: str = "ASYNC_FLUSH", lanes: int = 1) -> BrokerConfig:
    store = StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=4 << 20,
        max_hash_slot_num=1000,
        max_index_num=4000,
        max_message_size=4096,
        flush_disk_type=flush,
    )
    return BrokerConfig(
        broker_name="b",
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=free_port(),
        network_threads=lanes,
        store=store,
    )


class Ports:
    """Sends requests to a broker's main port (compiled code) and its VIP port (handlers only)."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self._client = client

    async def ask(
        self,
        code: int,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        vip: bool = False,
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> RemotingCommand:
        port = self.broker.port - 2 if vip else self.broker.port
        command = RemotingCommand(
            code=code, ext_fields=dict(fields), body=body, serialize_type=serialize_type
        )
        return await self._client.invoke(f"127.0.0.1:{port}", command)

    def stored(self, start: int) -> list[tuple[object, ...]]:
        """The records from physical offset `start` on, without fields that differ in each send."""
        found = []
        while (record := self.broker.store.read(start)) is not None:
            start += len(record)
            r = decode_record(record)
            queue = self.broker.store.queues.get(r.topic, r.queue_id)
            tags = queue[r.queue_offset][2]
            out = int(r.properties.pop("TIMER_OUT_MS", "0"))
            level = r.queue_id if r.topic in PARKED else None
            if r.topic in PARKED:
                # Due times are rounded, because the sends are not at the same time.
                tags = (tags - r.store_timestamp + SLACK_MS) // (2 * SLACK_MS)
            if out:
                out = (out - r.store_timestamp + SLACK_MS) // (2 * SLACK_MS)
            found.append(
                (
                    *(r.topic, r.body, r.properties, r.flag, r.sys_flag),
                    *(r.born_timestamp, tags, level, out),
                    *(r.born_host[0], r.store_host, r.reconsume_times, r.body_crc),
                )
            )
        return found


async def send_both_ways(ports: Ports, name: str, serialize_type: SerializeType) -> None:
    code, fields, body = SENDS[name]
    outcomes = []
    # The second compiled request has a header of a shape that was decoded before.
    for vip in (True, False, False):
        start = ports.broker.store.log.max_offset
        answer = await ports.ask(code, fields, body, vip=vip, serialize_type=serialize_type)
        varying = {"msgId", "queueOffset", "queueId" if "any" in name else ""}
        constant = {k: v for k, v in answer.ext_fields.items() if k not in varying}
        ids = answer.ext_fields.get("msgId", "").count(",")
        remark = re.sub(r"127\.0\.0\.1:\d+", "producer", answer.remark or "")
        outcomes.append((answer.code, remark, constant, ids, ports.stored(start)))
    assert outcomes[0] == outcomes[1] == outcomes[2], name


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_compiled_code_and_python_store_and_answer_the_same(
    flush: str, serialize_type: SerializeType, tmp_path: Path
) -> None:
    config = config_of(tmp_path, flush)
    config.store.message_delay_level = "10m 20m 30m 1h"  # nothing comes due meanwhile
    async with Broker(config) as broker:
        client = RemotingClient()
        ports = Ports(broker, client)
        assert (await ports.ask(17, CREATE)).code == 0
        for name in SENDS:
            await send_both_ways(ports, name, serialize_type)
        assert broker._paths is not None
        # An ordinary send, the second to the created topic, a batch of three, two delayed ones;
        # and those to any queue whose turn comes to a queue that is open already.
        assert broker._paths.stored_by_fast_path - 2 * (1 + 1 + 3 + 2) in (0, 1, 2)
        await client.close()


async def test_changed_limits_of_deliver_times_take_effect_at_once(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        client = RemotingClient()
        ports = Ports(broker, client)
        await ports.ask(17, CREATE)
        await send_both_ways(ports, "s from now", SerializeType.JSON)
        for change in (b"timerMaxDelaySec=60", b"timerMaxDelaySec=90000\ntimerWheelEnable=false"):
            assert (await ports.ask(25, {}, change)).code == 0
            await send_both_ways(ports, "s from now", SerializeType.JSON)
            assert broker.store.max_offset("rmq_sys_wheel_timer", 0) == 3
        await client.close()


async def test_new_delay_levels_take_effect_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("messageDelayLevel=1s 1m\n")
    config = config_of(tmp_path / "store")
    config.store.message_delay_level = "1s 1m"
    async with Broker(config, config_path=path) as broker:
        client = RemotingClient()
        ports = Ports(broker, client)
        await ports.ask(17, CREATE)
        change = await ports.ask(25, {}, b"messageDelayLevel=1s 1m 1h")
        assert (change.code, change.remark) == (0, "after a restart: messageDelayLevel")
        await send_both_ways(ports, "a level above the highest", SerializeType.JSON)
        assert broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 3
        await client.close()
    assert load_config(path).config.store.message_delay_level == "1s 1m 1h"


async def test_pulls_of_any_size_return_the_messages_as_sent(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        client = RemotingClient()
        ports = Ports(broker, client)
        await ports.ask(17, CREATE)
        sent = [b"%d" % i * (1 + i * 37 % 900) for i in range(200)]
        for i, body in enumerate(sent):
            fields = SHORT | {"i": f"TAGS\x01{'rare' if i % 50 == 7 else 'common'}"}
            assert (await ports.ask(310, fields, body)).code == 0
        assert await pull_all(ports, "*") == sent
        assert await pull_all(ports, "rare") == [sent[i] for i in range(7, 200, 50)]
        assert string_hash("rare") != string_hash("common")
        await client.close()


async def pull_all(ports: Ports, expression: str) -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    while True:
        answer = await ports.ask(
            11,
            {
                "consumerGroup": "G",
                "topic": "T",
                "queueId": "1",
                "queueOffset": str(offset),
                "maxMsgNums": "32",
                "sysFlag": "5",
                "commitOffset": str(offset),
                "suspendTimeoutMillis": "0",
                "subscription": expression,
                "subVersion": "0",
            },
        )
        if answer.code != 0:
            assert answer.code == 19, answer.remark
            assert ports.broker.managers.metadata.offsets.query("G", "T", 1) == offset
            return bodies
        bodies += [record.body for record in decode_records(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])


async def test_a_changed_rule_invalidates_a_pull_plan(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        client = RemotingClient()
        ports = Ports(broker, client)
        await ports.ask(17, CREATE)
        await ports.ask(310, SHORT, b"body")
        assert await pull_all(ports, "*") == [b"body"]
        await ports.ask(17, CREATE | {"perm": "2"})
        with pytest.raises(AssertionError, match="pulling message is forbidden"):
            await pull_all(ports, "*")
        await client.close()


MANY_QUEUES = 150  # twice the list of queues that one run of compiled code fills, and more
MANY_SENDS = 2 * MANY_QUEUES
HELD_PULL = {
    "consumerGroup": "G",
    "topic": "T",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "60000",
    "subscription": "*",
    "subVersion": "0",
}


async def next_answer(reader: asyncio.StreamReader) -> RemotingCommand:
    length = await reader.readexactly(4)
    return RemotingCommand.decode(length + await reader.readexactly(int.from_bytes(length, "big")))


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_sends_that_wake_many_waiting_pulls_do_not_wait_for_more_bytes(
    flush: str, tmp_path: Path
) -> None:
    async with Broker(config_of(tmp_path, flush)) as broker:
        consumer, to_broker = await asyncio.open_connection("127.0.0.1", broker.port)
        fields = CREATE | {"readQueueNums": str(MANY_QUEUES), "writeQueueNums": str(MANY_QUEUES)}
        to_broker.write(RemotingCommand(code=17, ext_fields=fields).encode())
        assert (await next_answer(consumer)).code == 0
        for queue in range(MANY_QUEUES):
            pull = RemotingCommand(
                code=11, opaque=queue, ext_fields=HELD_PULL | {"queueId": str(queue)}
            )
            to_broker.write(pull.encode())
        while broker._paths.waiting()[1] < MANY_QUEUES:
            await asyncio.sleep(0.01)

        producer, from_producer = await asyncio.open_connection("127.0.0.1", broker.port)
        from_producer.write(
            b"".join(
                RemotingCommand(
                    code=310,
                    opaque=number,
                    ext_fields=SHORT | {"e": str(number % MANY_QUEUES)},
                    body=b"body",
                ).encode()
                for number in range(MANY_SENDS)
            )
        )
        async with asyncio.timeout(60):
            sent = [await next_answer(producer) for _ in range(MANY_SENDS)]
            pulled = [await next_answer(consumer) for _ in range(MANY_QUEUES)]
        assert {(a.code, a.opaque) for a in sent} == {(0, number) for number in range(MANY_SENDS)}
        assert {(a.code, a.opaque) for a in pulled} == {(0, queue) for queue in range(MANY_QUEUES)}
        for writer in (from_producer, to_broker):
            writer.close()
