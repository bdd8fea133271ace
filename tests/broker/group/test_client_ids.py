"""A client id belongs to the account and connection that has it."""

from pathlib import Path
from typing import Any

import pytest

from congreve.base.clock import ManualClock
from congreve.base.steps import at_once
from congreve.broker.group.client_ids import IDS_OF_CONNECTION, KEPT_OF_ACCOUNT, ClientIds
from congreve.broker.group.clients import CHANNEL_EXPIRED_S, ClientChannel
from congreve.broker.group.locks import RebalanceLockManager
from congreve.records.message.property_codec import encode_properties
from congreve.remoting.messages.bodies import ConsumerData, HeartbeatData, ProducerData
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeaderV2
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import Connection

from ..guarded import FILE, SECRET, guarded
from ..tool import Tool

PARTNERS = (
    FILE
    + f"- {{accessKey: asker-00, secretKey: {SECRET}, groupPerms: [G=SUB]}}\n"
    + f"- {{accessKey: stranger, secretKey: {SECRET}, groupPerms: [G=SUB]}}\n"
)


def client(connection: Any, access_key: str | None, client_id: str = "id") -> ClientChannel:
    return ClientChannel(connection, client_id, "JAVA", 401, access_key=access_key)


@pytest.fixture
def uptime() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def ids(uptime: ManualClock) -> ClientIds:
    return ClientIds(lambda: uptime.now() / 1000)


def test_an_id_goes_to_its_accounts_latest_connection(
    ids: ClientIds, connection: Any, another_connection: Any
) -> None:
    ids.hear(client(connection, "one"))
    ids.hear(client(another_connection, "one"))
    at_once(ids.closing_steps(connection))
    assert ids.find("id") is another_connection


def test_another_account_has_the_id_only_when_its_client_is_away_for_long(
    ids: ClientIds, uptime: ManualClock, connection: Any, another_connection: Any, caplog: Any
) -> None:
    ids.hear(client(connection, "one"))
    stranger = client(another_connection, "two")
    ids.hear(stranger)
    assert ids.find("id") is connection and not ids.belongs_to(stranger)
    assert "of another account" in caplog.text
    connection.closed = True
    at_once(ids.closing_steps(connection))
    for wait_s in (0, CHANNEL_EXPIRED_S):
        uptime.advance(wait_s * 1000)
        at_once(ids.expiry_steps())
        ids.hear(stranger)
        assert ids.find("id") is None, "its client may connect again"
    uptime.advance(1)
    at_once(ids.expiry_steps())
    ids.hear(stranger)
    assert ids.find("id") is another_connection


def test_a_client_that_comes_back_keeps_its_id(
    ids: ClientIds, uptime: ManualClock, connection: Any, another_connection: Any
) -> None:
    ids.hear(client(connection, "one"))
    at_once(ids.closing_steps(connection))
    ids.hear(client(another_connection, "one"))
    uptime.advance(CHANNEL_EXPIRED_S * 1000 + 1)
    at_once(ids.expiry_steps())
    assert ids.find("id") is another_connection


def test_without_accounts_the_latest_heartbeat_has_the_id(
    ids: ClientIds, connection: Any, another_connection: Any
) -> None:
    ids.hear(client(connection, None))
    ids.hear(client(another_connection, None))
    assert ids.find("id") is another_connection
    at_once(ids.closing_steps(another_connection))
    ids.hear(client(connection, "one"))
    assert ids.find("id") is connection


def test_the_ids_of_a_connection_and_of_an_account_have_a_limit(
    ids: ClientIds, connection: Any
) -> None:
    for number in range(KEPT_OF_ACCOUNT + 3 * IDS_OF_CONNECTION):
        ids.hear(client(connection, "one", str(number)))
    at_once(ids.closing_steps(connection))
    assert len(ids._owners) == len(ids._kept["one"]) == KEPT_OF_ACCOUNT


def test_a_lock_is_of_the_account_that_has_it() -> None:
    locks, queue = RebalanceLockManager(), MessageQueue(topic="T", broker_name="b", queue_id=0)
    assert locks.lock("G", [queue], "id", "one") == [queue]
    assert locks.lock("G", [queue], "id", "two") == []
    locks.unlock("G", [queue], "id", "two")
    assert locks.lock("G", [queue], "id", "two") == []
    assert locks.lock("G", [queue], "id", "one") == [queue]


async def online(address: str, sender: str, got: list[str]) -> RemotingClient:
    """A client that sent a heartbeat, always with the same id, and notes the broker's requests."""

    def note(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        got.append(sender)
        return request.reply(0)

    sign = Credentials(access_key=sender, secret_key=SECRET).sign
    client = RemotingClient(before_request=sign, handlers=dict.fromkeys((307, 326), note))
    beat = HeartbeatData(
        client_id="10.0.0.1@7",
        producer_data_set=[ProducerData(group_name="askers")],
        consumer_data_set=[
            ConsumerData(
                group_name="G",
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
            )
        ],
    )
    assert (await Tool(address, client).ask(34, body=beat.encode())).code == 0
    return client


async def test_a_heartbeat_of_another_account_gets_no_replies_and_no_requests(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, PARTNERS) as (_, tools):
        admin, got = tools.of("administrator"), []
        clients = [await online(tools.address, who, got) for who in ("asker-00", "stranger")]
        text = encode_properties({"REPLY_TO_CLIENT": "10.0.0.1@7", "MSG_TYPE": "reply"}).decode()
        reply = SendMessageRequestHeaderV2(
            producer_group="P",
            topic="C_REPLY_TOPIC",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties=text,
            reconsume_times=0,
        )
        assert (await admin.ask(325, reply.fields(), b"a secret reply")).code == 0
        info = {"consumerGroup": "G", "clientId": "10.0.0.1@7", "jstackEnable": "false"}
        assert (await admin.ask(307, info)).code == 0
        assert got == ["asker-00", "asker-00"]
        for each in clients:
            await each.close()
