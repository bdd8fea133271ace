"""Tables that clients fill have a limit: one more entry is refused, and the others stay."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.broker.config_parts import LimitsConfig
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.engine.config import StoreConfig
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.bodies import ConsumerData, HeartbeatData, ProducerData
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from .tool import PULL_FIELDS, TOPIC_FIELDS, local_config

MANY = 30
LIMIT = 5
SEND = {
    "a": "P", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
    "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


class Clients:
    """Clients of one broker, each with a connection of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._clients: list[RemotingClient] = []

    def another(self) -> RemotingClient:
        self._clients.append(RemotingClient())
        return self._clients[-1]

    async def ask(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        client: RemotingClient | None = None,
    ) -> RemotingCommand:
        client = client or (self._clients or [self.another()])[0]
        command = RemotingCommand(code=code, ext_fields=dict(fields or {}), body=body)
        return await client.invoke(f"127.0.0.1:{self.broker.port}", command)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def serving(root: Path, **settings: int) -> AsyncIterator[Clients]:
    store = StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )
    config = local_config(broker_name="b", store=store, limits=LimitsConfig(**settings))
    async with Broker(config) as broker:
        clients = Clients(broker)
        clients.another()
        try:
            yield clients
        finally:
            await clients.close()


def heartbeat(client_id: str, group: str, topics: int = 1, *, producers: int = 0) -> bytes:
    subscriptions = [SubscriptionData(topic=f"T{i}", sub_string="*") for i in range(topics)]
    consumer = ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=subscriptions,
    )
    return HeartbeatData(
        client_id=client_id,
        consumer_data_set=[consumer],
        producer_data_set=[ProducerData(group_name=f"{group}-{i}") for i in range(producers)],
    ).encode()


def refused(answers: list[RemotingCommand], setting: str) -> int:
    """How many were refused because of the setting; all others must have succeeded."""
    wrong = [answer for answer in answers if answer.code != 0]
    assert all(answer.code == 1 and setting in (answer.remark or "") for answer in wrong), wrong
    return len(wrong)


def lines_about(caplog: pytest.LogCaptureFixture, setting: str) -> int:
    return sum(
        setting in record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING
    )


async def test_topics_over_the_limit_are_refused_and_the_others_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, max_topics=20) as clients:
        made = [await clients.ask(310, SEND | {"b": f"S{i}"}, b"body") for i in range(MANY)]
        made += [await clients.ask(17, TOPIC_FIELDS | {"topic": f"A{i}"}) for i in range(MANY)]
        topics = clients.broker.managers.metadata.topics.table
        assert refused(made, "maxTopics") > MANY and len(topics) == 20
        assert (await clients.ask(310, SEND | {"b": "S0"}, b"body")).code == 0
        assert (await clients.ask(17, TOPIC_FIELDS | {"topic": "S0", "perm": "4"})).code == 0
        assert (await clients.ask(215, {"topic": "S0"})).code == 0
        assert (await clients.ask(310, SEND | {"b": "again"}, b"body")).code == 0
    assert lines_about(caplog, "maxTopics") == 1


async def test_a_lost_topics_file_is_rebuilt_beyond_the_limit(tmp_path: Path) -> None:
    async with serving(tmp_path) as clients:
        for i in range(MANY):
            assert (await clients.ask(310, SEND | {"b": f"S{i}"}, b"body")).code == 0
    for file in (tmp_path / "config").glob("topics.json*"):
        file.unlink()
    async with serving(tmp_path, max_topics=1) as clients:
        assert {f"S{i}" for i in range(MANY)} < clients.broker.managers.metadata.topics.table.keys()


@pytest.mark.parametrize("perm", [-1, 16, 2**31 - 1, -(2**31)])
async def test_a_topic_with_invalid_permissions_is_refused(perm: int, tmp_path: Path) -> None:
    async with serving(tmp_path) as clients:
        answer = await clients.ask(17, TOPIC_FIELDS | {"perm": str(perm)})
        assert answer.code == 1 and f"perm[{perm}]" in (answer.remark or "")
        assert "T" not in clients.broker.managers.metadata.topics.table
        for possible in range(16):
            assert (await clients.ask(17, TOPIC_FIELDS | {"perm": str(possible)})).code == 0


async def test_groups_over_the_limit_are_refused_and_the_others_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, max_groups=20) as clients:
        answers = [await clients.ask(34, body=heartbeat("c", f"G{i}")) for i in range(MANY)]
        managers = clients.broker.managers
        assert refused(answers, "maxGroups") > 0 and len(managers.metadata.groups.table) == 20
        assert len(managers.members.consumers.groups) <= 20
        assert (await clients.ask(34, body=heartbeat("c", "G0", 2))).code == 0
        assert (
            refused(
                [await clients.ask(11, PULL_FIELDS | {"consumerGroup": "unheard"})], "maxGroups"
            )
            == 1
        )
    assert lines_about(caplog, "maxGroups") == 1


async def test_producers_over_the_limit_of_groups_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, max_groups=20) as clients:
        answer = await clients.ask(34, body=heartbeat("c", "G", producers=MANY))
        assert refused([answer], "maxGroups") == 1
        assert len(clients.broker.managers.members.producers.groups) == 20
        assert "G" in clients.broker.managers.members.consumers.groups


async def test_a_producer_that_changes_its_client_id_leaves_no_old_ones(tmp_path: Path) -> None:
    async with serving(tmp_path) as clients:
        for i in range(MANY):
            assert (await clients.ask(34, body=heartbeat(f"c{i}", "G", producers=1))).code == 0
        ids = clients.broker.managers.members.ids
        assert ids.find("c0") is None and ids.find(f"c{MANY - 1}") is not None


async def test_members_and_subscriptions_over_their_limits_are_refused(tmp_path: Path) -> None:
    limits = {"max_group_members": LIMIT, "max_group_subscriptions": LIMIT}
    async with serving(tmp_path, **limits) as clients:
        others = [clients.another() for _ in range(MANY)]
        answers = await asyncio.gather(
            *(
                clients.ask(34, body=heartbeat(f"c{i}", "G"), client=client)
                for i, client in enumerate(others)
            )
        )
        assert refused(list(answers), "maxGroupMembers") == MANY - LIMIT
        group = clients.broker.managers.members.consumers.groups["G"]
        assert len(group.channels) == LIMIT
        large = await clients.ask(34, body=heartbeat("c", "H", LIMIT + 1))
        assert refused([large], "maxGroupSubscriptions") == 1
        assert "H" not in clients.broker.managers.members.consumers.groups
        assert (await clients.ask(34, body=heartbeat("c", "H", LIMIT))).code == 0


async def test_memberships_of_all_groups_together_are_limited(tmp_path: Path) -> None:
    async with serving(tmp_path, max_memberships=LIMIT) as clients:
        others = [clients.another() for _ in range(3)]
        answers = [
            await clients.ask(34, body=heartbeat(f"c{i}", f"G{group}", producers=1), client=client)
            for group in range(3)
            for i, client in enumerate(others)
        ]
        assert refused(answers, "maxMemberships") == 9 - LIMIT
        assert (await clients.ask(34, body=heartbeat("c0", "G0"), client=others[0])).code == 0
        managers = clients.broker.managers
        assert (
            managers.members.consumers._memberships
            == managers.members.producers._memberships
            == LIMIT
        )
        await others[0].close()
        async with asyncio.timeout(60):
            while managers.members.consumers._memberships == LIMIT:
                await asyncio.sleep(0.01)
        assert (await clients.ask(34, body=heartbeat("c1", "G2"), client=others[1])).code == 0


async def test_subscriptions_of_all_groups_together_are_limited_by_their_bytes(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, max_subscription_bytes=40_000) as clients:
        answers = [await clients.ask(34, body=heartbeat("c", f"G{i}", 5)) for i in range(MANY)]
        taken = MANY - refused(answers, "maxSubscriptionBytes")
        assert 0 < taken < MANY
        assert (await clients.ask(34, body=heartbeat("c", "G0", 5))).code == 0
        assert refused([await clients.ask(34, body=heartbeat("c", "G0", 50))], "Bytes") == 1
        consumers = clients.broker.managers.members.consumers
        assert len(consumers.groups) == taken and len(consumers.groups["G0"].subscriptions) == 5
        for i in range(taken):
            left = {"clientID": "c", "consumerGroup": f"G{i}"}
            assert (await clients.ask(35, left)).code == 0
        assert consumers._subscription_bytes == consumers._memberships == 0


async def test_a_name_over_the_length_limit_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as clients:
        for client_id, group in (("c" * 10_000, "G"), ("c", "G" * 10_000)):
            answer = await clients.ask(34, body=heartbeat(client_id, group))
            assert answer.code == 1 and "use at most 1024 and 255" in (answer.remark or "")
        assert not clients.broker.managers.members.consumers.groups


async def test_offsets_over_the_limit_are_refused_and_known_ones_advance(tmp_path: Path) -> None:
    async with serving(tmp_path, max_consumer_offsets=LIMIT) as clients:
        assert (await clients.ask(17, TOPIC_FIELDS)).code == 0

        async def commit(group: str, queue: int, offset: int) -> RemotingCommand:
            fields = {"consumerGroup": group, "topic": "T", "queueId": str(queue)}
            return await clients.ask(15, fields | {"commitOffset": str(offset)})

        answers = [await commit(f"G{i % 10}", i, 1) for i in range(MANY)]
        assert refused(answers, "maxConsumerOffsets") == MANY - LIMIT
        assert (await commit("G0", 0, 7)).code == 0
        offsets = clients.broker.managers.metadata.offsets
        offsets.commit("by a pull", "T", 0, 1)
        assert offsets.query("by a pull", "T", 0) == -1 and offsets.query("G0", "T", 0) == 7
        clone = {"srcGroup": "G0", "destGroup": "X", "topic": "T", "offline": "true"}
        assert refused([await clients.ask(314, clone)], "maxConsumerOffsets") == 1
        offsets.remove_group("G0")
        assert (await commit("new", 0, 1)).code == 0


async def test_offsets_are_limited_by_their_bytes(tmp_path: Path) -> None:
    async with serving(tmp_path, max_consumer_offset_bytes=20_000) as clients:
        assert (await clients.ask(17, TOPIC_FIELDS)).code == 0
        long = "G" * 250

        async def commit(group: str) -> RemotingCommand:
            fields = {"consumerGroup": group, "topic": "T", "queueId": "0", "commitOffset": "1"}
            return await clients.ask(15, fields)

        answers = [await commit(f"{i}{long}") for i in range(MANY)]
        taken = MANY - refused(answers, "maxConsumerOffsetBytes")
        assert 0 < taken < MANY
        offsets = clients.broker.managers.metadata.offsets
        offsets.commit("by a pull", "T", 0, 1)
        assert offsets.query("by a pull", "T", 0) == -1
        loaded = ConsumerOffsetManager(clients.broker.config)
        loaded.load(offsets.file_text())
        loaded.replay([(f"T@0{long}", {0: 3, 1: 2}), (f"T@1{long}", None)])
        loaded.note(f"0{long}", "T", 1, 4)
        for i in range(taken):
            offsets.remove_group(f"{i}{long}")
            loaded.remove_group(f"{i}{long}")
        assert offsets._bytes == loaded._bytes == 0
        assert (await commit("new")).code == 0


async def test_endless_invalid_requests_do_not_fill_the_log_of_an_embedded_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as clients:
        assert (await clients.ask(17, TOPIC_FIELDS)).code == 0
        assert (await clients.ask(310, SEND, b"body")).code == 0
        caplog.clear()
        for number in range(50):
            assert (await clients.ask(310, SEND | {"b": "no good"}, b"body")).code == 1
            assert (
                await clients.ask(11, PULL_FIELDS | {"queueOffset": str(1_000 + number)})
            ).code == 21
            offset = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
            assert (await clients.ask(15, offset | {"commitOffset": str(99 - number)})).code == 0
            assert (await clients.ask(34, body=heartbeat(f"c{number}", "G"))).code == 0
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) <= 4, warnings
