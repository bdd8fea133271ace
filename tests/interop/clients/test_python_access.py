"""Our client with access control and TLS of the reference."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator

import pytest
from harness import servers
from harness.drivers import Driver
from harness.eventually import eventually
from starlette.testclient import TestClient

from congreve.client import (
    ConsumeFrom,
    Credentials,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SyncProducer,
)
from congreve.client.errors import BrokerError
from congreve.console.web.options import Options
from congreve.console.web.serving.site import Site

from .groups import group


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.BrokerServer]:
    """The reference with access control and TLS."""
    folder = tmp_path_factory.mktemp("acl")
    namesrv = servers.namesrv("java", folder / "namesrv", jvm=servers.TLS_JVM)
    namesrv.start()
    made = servers.broker(
        *("java", folder / "broker", namesrv.address),
        settings={"aclEnable": "true"},
        jvm=servers.TLS_JVM,
    )
    (folder / "broker" / "home" / "conf" / "plain_acl.yml").write_text(
        "accounts:\n- accessKey: pythonclient\n  secretKey: 'secret-of-it'\n  admin: true\n"
    )
    made.start()
    yield made
    made.kill()
    namesrv.kill()


async def test_signed_requests_pass_access_control(
    guarded: servers.BrokerServer, java: Driver
) -> None:
    message = Message(topic="guarded", body=b"\x00\xff signed", properties={"ü": "ö"})
    good = Credentials(access_key="pythonclient", secret_key="secret-of-it")
    async with Producer(guarded.namesrv, group=group(), credentials=good) as producer:
        await producer.send(message)
        await producer.send_oneway(message)
        await producer.send_many("guarded", [b"a", b"b"])

    def send_from_a_thread() -> None:
        with SyncProducer(guarded.namesrv, group=group(), credentials=good) as producer:
            for _ in range(2):
                producer.send(message)
                producer.send_oneway(message)

    await asyncio.to_thread(send_from_a_thread)
    came: list[ReceivedMessage] = []
    async with PushConsumer(
        guarded.namesrv,
        group=group(),
        topics={"guarded": "*"},
        listener=came.append,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        credentials=good,
    ):
        await eventually(lambda: len(came) >= 8)
    bad = Credentials(access_key="pythonclient", secret_key="another-one")
    for credentials in (bad, None):
        async with Producer(
            guarded.namesrv, group=group(), credentials=credentials, retries=0
        ) as producer:
            with pytest.raises(BrokerError, match="AclException"):
                await producer.send(message)


def test_the_web_console_logs_in_and_finds_a_message_by_its_id(
    guarded: servers.BrokerServer, java: Driver
) -> None:
    """The reference leaves the flag of such a query out of the signature."""
    good = Credentials(access_key="pythonclient", secret_key="secret-of-it")
    with SyncProducer(guarded.namesrv, group=group(), credentials=good) as producer:
        sent = producer.send(Message(topic="guarded", body=b"found by its id"))
    site = Site(Options(namesrv=guarded.namesrv))
    with TestClient(site.app, base_url="http://127.0.0.1") as http:
        answers = []
        for secret in ("another-one", "secret-of-it"):
            token = re.search(r'name="csrf" value="(\w+)"', http.get("/topics").text)
            assert token is not None
            fields = {"csrf": token[1], "access_key": "pythonclient", "secret_key": secret}
            answers.append(http.post("/login", data=fields).status_code)
        assert answers == [403, 200]
        path = f"/messages?topic=guarded&by=id&id={sent.message_id}"
        assert "found by its id" in http.get(path).text
        assert "found by its id" in http.get("/messages?topic=guarded&text=by+its").text


async def test_tls_and_the_vip_port_of_the_reference(
    guarded: servers.BrokerServer,
) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    message = Message(topic="guarded", body=b"encrypted")
    settings = {
        "group": group(),
        "ssl": context,
        "vip_channel": True,
        "credentials": Credentials(access_key="pythonclient", secret_key="secret-of-it"),
    }
    async with Producer(guarded.namesrv, **settings) as producer:
        sent = await producer.send(message)
        assert sent.queue.broker_name == "broker-a"

    def send_from_a_thread() -> list[int]:
        with SyncProducer(guarded.namesrv, **settings) as producer:
            return [producer.send(message, queue=sent.queue).queue_offset for _ in range(3)]

    first, *rest = await asyncio.to_thread(send_from_a_thread)
    assert rest == [first + 1, first + 2]
    async with PullConsumer(
        guarded.namesrv, group=group(), ssl=context, credentials=settings["credentials"]
    ) as consumer:
        pulled = await consumer.pull(sent.queue, first, wait_s=1)
        assert [each.body for each in pulled.messages[:3]] == [b"encrypted"] * 3
