"""Compiled sends and pulls do what the Python handlers do: the main port against the VIP port,
which has the handlers alone."""

import re
import socket
import struct
import time
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig, load_config
from congreve.engine.config import StoreConfig
from congreve.records.record import decode_record, decode_records, string_hash
from congreve.remoting.client import RemotingClient
from congreve.remoting.codes import SerializeType
from congreve.remoting.command import RemotingCommand

CREATE = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}
LATER_MS = 86_400_000 + time.time_ns() // 1_000_000
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
SENDS = {
    "long names": (10, LONG, b"body"),
    "short names": (310, SHORT, b"body"),
    "no properties": (310, {k: v for k, v in SHORT.items() if k != "i"}, b"body"),
    "compressed by the client": (310, SHORT | {"f": "769"}, b"\x78\x9c"),
    "pieces that are no property": (310, SHORT | {"i": "\x01x\x02ab\x02k\x01v\x02"}, b"body"),
    "a queue that is not there": (310, SHORT | {"e": "2"}, b"body"),
    "any queue": (310, SHORT | {"e": "-1"}, b"body"),
    "an unknown topic": (310, SHORT | {"b": "made-on-send"}, b"body"),
    "a name that is none": (310, SHORT | {"b": "no good"}, b"body"),
    "the broker's own topic": (310, SHORT | {"b": "SELF_TEST_TOPIC"}, b"body"),
    "a delay": (310, SHORT | {"i": "KEYS\x01k\x02DELAY\x013\x02TAGS\x01a"}, b"body"),
    "a delay alone": (10, LONG | {"properties": "DELAY\x011"}, b""),
    "a level above the highest": (310, SHORT | {"i": "DELAY\x01999\x02WAIT\x01true"}, b"body"),
    "no delay": (310, SHORT | {"i": "DELAY\x010"}, b"body"),
    "a delay that is no number": (310, SHORT | {"i": "DELAY\x01soon"}, b"body"),
    "a delay of a parked message": (310, SHORT | {"i": "REAL_TOPIC\x01X\x02DELAY\x013"}, b"body"),
    "two delays": (310, SHORT | {"i": "DELAY\x013\x02DELAY\x014"}, b"body"),
    "a deliver time": (310, SHORT | {"i": f"TIMER_DELIVER_MS\x01{LATER_MS}\x02TAGS\x01a"}, b"body"),
    "ms from now": (310, SHORT | {"i": "TAGS\x01a\x02TIMER_DELAY_MS\x0186400000"}, b"body"),
    "s from now": (310, SHORT | {"i": "TIMER_DELAY_SEC\x0186400"}, b"body"),
    "a deliver time in the past": (310, SHORT | {"i": "TIMER_DELIVER_MS\x011"}, b"body"),
    "a deliver time too far": (310, SHORT | {"i": "TIMER_DELAY_SEC\x013456001"}, b"body"),
    "a deliver time beyond all": (310, SHORT | {"i": f"TIMER_DELAY_SEC\x01{9**18}"}, b"body"),
    "a deliver time that is none": (310, SHORT | {"i": "TIMER_DELAY_MS\x01-1"}, b"body"),
    "a delay and a deliver time": (
        310,
        SHORT | {"i": "DELAY\x013\x02TIMER_DELAY_MS\x0186400000"},
        b"body",
    ),
    "two deliver times": (
        310,
        SHORT | {"i": "TIMER_DELAY_MS\x0186400000\x02TIMER_DELAY_SEC\x0186400"},
        b"body",
    ),
    "a delay over the limit of properties": (
        310,
        SHORT | {"i": "DELAY\x013\x02k\x01" + "v" * 32_750},
        b"body",
    ),
    "a half message": (310, SHORT | {"i": "TRAN_MSG\x01true", "f": "4"}, b"body"),
    "a body over the limit": (310, SHORT, b"x" * 4097),
    "properties over the limit": (310, SHORT | {"i": "k\x01" + "v" * 32_766}, b"body"),
    "a field that is no number": (310, SHORT | {"h": "seven"}, b"body"),
    "a field that is missing": (310, {k: v for k, v in SHORT.items() if k != "g"}, b"body"),
    "a batch": (
        320,
        SHORT | {"m": "true", "i": "WAIT\x01true"},
        batch_body((b"one", b"TAGS\x01a"), (b"", b""), (b"three", b"KEYS\x01k\x02")),
    ),
    "a batch with a delay": (320, SHORT | {"m": "true"}, batch_body((b"one", b"DELAY\x013"))),
    "a batch that breaks off": (320, SHORT | {"m": "true"}, batch_body((b"one", b""))[:-1]),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def config_of(root: Path, flush: str = "ASYNC_FLUSH") -> BrokerConfig:
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
        store=store,
    )


class Ports:
    """A broker asked by its main port (compiled) and by its VIP port (handlers alone)."""

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
        """What was appended from physical offset `start` on, less what differs in any two sends."""
        found = []
        while (record := self.broker.store.read(start)) is not None:
            start += len(record)
            r = decode_record(record)
            queue = self.broker.store.queues.get(r.topic, r.queue_id)
            tags = queue[r.queue_offset][2]
            out = int(r.properties.pop("TIMER_OUT_MS", "0"))
            level = r.queue_id if r.topic in PARKED else None
            if r.topic in PARKED:
                # When it is due; what was sent before has waited a little less.
                tags = (tags - r.store_timestamp + SLACK_MS) // (2 * SLACK_MS)
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
    # The second of the compiled ones has a header like one that was decoded before.
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
async def test_both_store_and_answer_the_same(
    flush: str, serialize_type: SerializeType, tmp_path: Path
) -> None:
    async with Broker(config_of(tmp_path, flush)) as broker:
        client = RemotingClient()
        ports = Ports(broker, client)
        assert (await ports.ask(17, CREATE)).code == 0
        for name in SENDS:
            await send_both_ways(ports, name, serialize_type)
        assert broker._hot_path is not None
        # Five ordinary sends, the made topic's second, a batch of three, six for later.
        assert broker._hot_path.put_messages == 2 * (5 + 1 + 3 + 6)
        await client.close()


async def test_limits_of_deliver_times_count_as_soon_as_they_change(tmp_path: Path) -> None:
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


async def test_a_new_table_of_delay_levels_waits_for_the_next_start(tmp_path: Path) -> None:
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


async def test_pulls_of_any_size_come_back_as_they_were_sent(tmp_path: Path) -> None:
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
            assert ports.broker.managers.offsets.query("G", "T", 1) == offset
            return bodies
        bodies += [record.body for record in decode_records(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])


async def test_a_rule_that_changes_ends_what_was_kept_of_a_pull(tmp_path: Path) -> None:
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
