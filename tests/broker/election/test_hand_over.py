"""After a transfer the old master hands clients' requests on to the new one."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path

import pytest
from harness.certificates import Authority, ha_tls_settings
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup
from harness.replication.etcd import Etcd
from harness.wire import GET_MAX_OFFSET, SEND_MESSAGE_V2, Wire, send_fields

from congreve.base.errors import CongreveError
from congreve.broker.election.etcd import EtcdCoordinator
from congreve.broker.election.operator import Operator
from congreve.broker.hand_over.greeting import HandOverError, client_frame, client_in
from congreve.client import Credentials, Message, Producer, PushConsumer, ReceivedMessage

TOPIC = "orders"
LEASE_S = 15
GET_RUNTIME = 28
ADMIN = Credentials(access_key="administrator", secret_key="a-long-secret")
PLAIN_ACL = """
accounts:
- accessKey: administrator
  secretKey: a-long-secret
  admin: true
"""


@asynccontextmanager
async def running_group(
    folder: Path, etcd: Etcd, members: int = 2, **settings: str
) -> AsyncIterator[ElectedGroup]:
    """All members are in the set, and the first is the master."""
    async with ElectedGroup(folder, etcd, haLeaseSeconds=str(LEASE_S), **settings) as group:
        await group.start(1)
        assert await group.master() == 1
        for number in range(2, members + 1):
            await group.start(number)
        await eventually(lambda: group.in_sync() == set(group.members))
        yield group


async def transfer(group: ElectedGroup, etcd: Etcd, member: int) -> None:
    config = group.members[member].config
    coordinator = EtcdCoordinator(
        [etcd.url], config.broker_cluster_name, config.broker_name, timeout_s=LEASE_S
    )
    try:
        await Operator(coordinator, "test", ttl_s=LEASE_S, timeout_s=60).transfer(member)
    finally:
        await coordinator.close()
    assert await group.master() == member
    await eventually(lambda: group.in_sync() == set(group.members))


class Sending:
    """Sends numbered messages one after the other, each once, to one queue."""

    def __init__(self, group: ElectedGroup, credentials: Credentials | None = None) -> None:
        self._producer = Producer(
            group.name_server.address, group="p", retries=0, credentials=credentials
        )
        self.sent: list[str] = []
        self.failures: list[str] = []
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Sending:
        await self._producer.start()
        self._task = asyncio.create_task(self._run())
        await eventually(lambda: len(self.sent) > 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        assert self._task is not None
        await self._task
        await self._producer.stop()

    async def _run(self) -> None:
        number = 0
        while not self._ended:
            number += 1
            message = Message(topic=TOPIC, body=b"%d" % number)
            try:
                await self._producer.send(message, timeout_s=60)
                self.sent.append(str(number))
            except CongreveError as error:
                self.failures.append(str(error))
            await asyncio.sleep(0.002)


async def test_clients_that_do_not_know_of_a_transfer_send_and_read_as_before(
    tmp_path: Path, etcd: Etcd
) -> None:
    read: defaultdict[int, list[int]] = defaultdict(list)

    hosts: list[tuple[str, int]] = []

    def listener(message: ReceivedMessage) -> None:
        read[message.queue_id].append(int(message.body))
        if message.body == b"0":
            hosts.append(message.born_host)

    async with running_group(tmp_path, etcd) as group:
        names, old = group.name_server.address, group.members[1]
        wire, operator = Wire(old.address), Wire(old.address)
        consumer = PushConsumer(
            names, group="c", topics={TOPIC: "*"}, listener=listener, orderly=True
        )
        async with Sending(group) as sending, consumer:
            await eventually(lambda: sum(map(len, read.values())) > 20)
            await transfer(group, etcd, 2)
            before = len(sending.sent)
            await eventually(lambda: len(sending.sent) > before + 50)
            await eventually(lambda: sum(map(len, read.values())) > before + 50)
            assert sending.failures == []
            # The new master knows the client by its own address, and the old one counts.
            fields = send_fields(TOPIC, 0, {})
            answer = await asyncio.to_thread(wire.call, SEND_MESSAGE_V2, fields, b"0")
            assert answer.code == 0
            await eventually(lambda: hosts == [wire.local])
            # An administrator asks this broker, not the master.
            with pytest.raises(ConnectionError):
                await asyncio.to_thread(operator.call, GET_RUNTIME, {})
            with Wire(old.address) as again:
                runtime = await asyncio.to_thread(again.call, GET_RUNTIME, {})
            assert int(json.loads(runtime.body)["table"]["haHandedOn"]) > 50
            await eventually(lambda: set(map(int, sending.sent)) <= set(chain(*read.values())))
        for numbers in read.values():
            in_order = [number for number in numbers if number]
            assert in_order == sorted(set(in_order)), "the order of each queue, and nothing twice"
        # There is one hop: the next transfer closes connections that were handed on.
        await transfer(group, etcd, 1)
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(wire.call, GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
        wire.close()
        operator.close()


async def test_requests_are_handed_on_with_a_login_and_checked_again(
    tmp_path: Path, etcd: Etcd
) -> None:
    authority = Authority(tmp_path / "tls")
    accounts = tmp_path / "conf"
    accounts.mkdir()
    (accounts / "plain_acl.yml").write_text(PLAIN_ACL)
    (accounts / "plain_acl.yml").chmod(0o600)
    settings = {
        **ha_tls_settings(authority, *authority.issue("member")),
        "aclEnable": "true",
        "aclOpenNameServers": "true",
        "aclFolder": str(accounts),
        "brokerAccessKey": "administrator",
    }
    async with running_group(tmp_path, etcd, **settings) as group:
        with Wire(group.members[1].address) as stranger:
            async with Sending(group, ADMIN) as sending:
                await transfer(group, etcd, 2)
                before = len(sending.sent)
                await eventually(lambda: len(sending.sent) > before + 20)
                assert sending.failures == []
            fields = send_fields(TOPIC, 0, {})
            answer = await asyncio.to_thread(stranger.call, SEND_MESSAGE_V2, fields, b"0")
            assert answer.code != 0


async def test_the_new_master_ends_during_the_hand_over(tmp_path: Path, etcd: Etcd) -> None:
    async with running_group(tmp_path, etcd, 3) as group:
        async with Sending(group) as sending:
            await transfer(group, etcd, 2)
            before = len(sending.sent)
            await eventually(lambda: len(sending.sent) > before + 20)
            await group.stop(2)
            third = await group.master()
            before = len(sending.sent)
            await eventually(lambda: len(sending.sent) > before + 20)
        store = group.broker(third).store
        stored = sum(store.max_offset(TOPIC, queue) for queue in range(8))
        assert len(sending.sent) <= stored <= len(sending.sent) + len(sending.failures)


@pytest.mark.parametrize("client", [("127.0.0.1", 1), ("::1", 65535)])
def test_the_address_of_a_client_survives(client: tuple[str, int]) -> None:
    assert client_in(client_frame(client)) == client


def test_a_wrong_address_is_refused() -> None:
    for data in (b"", bytes(19), bytes(18)):
        with pytest.raises(HandOverError):
            client_in(data)
