"""Access control of our broker, with the clients and tools that RocketMQ has."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver, DriverError, Json, java_driver, message
from harness.eventually import eventually

from congreve.client import (
    ConsumeFrom,
    Credentials,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from congreve.client.errors import BrokerError
from congreve.console.main import cli

ANSWERS = Path(__file__).parents[2] / "golden/mqadmin_account_answers.json"
SECRET = "a-secret-of-its-own"
REPLIES = f"{servers.CLUSTER}_REPLY_TOPIC"
ACCOUNTS = f"""
accounts:
- accessKey: administrator
  secretKey: {SECRET}
  admin: true
- accessKey: service
  secretKey: {SECRET}
  topicPerms: [orders=PUB|SUB, questions=PUB|SUB, {REPLIES}=PUB]
  groupPerms: [billing=SUB, go-billing=SUB, python-billing=SUB, responders=SUB, paying=PUB]
- accessKey: reader-only
  secretKey: {SECRET}
  topicPerms: [orders=SUB]
- accessKey: the-broker
  secretKey: {SECRET}
"""


NEWCOMER = ("-a", "newcomer", "-s", "hidden-from-all")
ACCOUNT_COMMANDS = [
    ("updateAclConfig", *NEWCOMER, "-t", "orders=PUB", "-g", "billing=SUB", "-i", "DENY"),
    ("getAclConfig",),
    ("updateAclConfig", *NEWCOMER, "-u", "SUB", "-w", "10.0.0.*", "-m", "false"),
    ("updateAclConfig", *NEWCOMER, "-t", "orders=SUB,questions=PUB|SUB"),
    ("getAclConfig",),
    ("updateAclConfig", "-a", "short", "-s", "hidden-from-all"),
    ("updateAclConfig", "-a", "another-one", "-s", "short"),
    ("updateAclConfig", *NEWCOMER, "-t", "orders=NONSENSE"),
    ("clusterAclConfigVersion",),
    ("clusterAclConfigVersion", "-c", "nothing"),
    ("updateGlobalWhiteAddr", "-g", "10.1.1.*,10.1.2.3"),
    ("getAclConfig",),
    ("updateGlobalWhiteAddr", "-g", "10.1.1.*"),
    ("deleteAclConfig", "-a", "newcomer"),
    ("deleteAclConfig", "-a", "nobody-here"),
    ("getAclConfig",),
    ("getAclConfig", "-c", "nothing"),
]
# Only the reference shows secrets; our broker says in other words what is wrong.
SHOWN_AS = (
    (r"(CODE: \d+) .*|^The expected permissions.*", r"\1"),
    (r"127\.0\.0\.1:\d+", "PEER"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"^ *secretKey.*", ""),
    (r"PlainAccessConfig@[0-9a-f]+", "PlainAccessConfig"),
    (r"/\S+/plain_acl.yml", "FILE"),
    (r"^\s+at .*$|^\s+\.\.\. \d+ more$", ""),
    (r"http://rocketmq\S*|See .* further details\.|For more information, .*", ""),
    (r" +", " "),
)


@pytest.fixture(scope="module")
def guarded(
    kind: str, namesrv: servers.Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A broker with access control."""
    folder = tmp_path_factory.mktemp("accounts")
    accounts = folder / ("plain_acl.yml" if kind == "congreve" else "home/conf/plain_acl.yml")
    accounts.parent.mkdir(parents=True, exist_ok=True)
    accounts.write_text(ACCOUNTS)
    broker = servers.broker(
        kind,
        folder,
        namesrv.address,
        broker_name="broker-guarded",
        settings={
            "aclEnable": "true",
            "aclOpenNameServers": "true",
            "brokerAccessKey": "the-broker",
            "transactionCheckInterval": "700",
            "transactionTimeOut": "500",
        },
    )
    broker.start()
    yield Cluster(namesrv, broker)
    broker.kill()


def signing(folder: Path, key: str, serialize_type: str = "JSON") -> Driver:
    """The Java client and mqadmin with an account."""
    conf = folder / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "tools.yml").write_text(f"accessKey: {key}\nsecretKey: {SECRET}\n")
    account = (f"-Dinterop.accessKey={key}", f"-Dinterop.secretKey={SECRET}")
    return java_driver(folder, serialize_type, *account)


@pytest.fixture(scope="module")
def admin(guarded: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """mqadmin as the administrator, who has made the topics."""
    driver = signing(tmp_path_factory.mktemp("admin"), "administrator")
    for topic in ("orders", "questions"):
        guarded.create_topic(driver, topic, queues=2)
    yield driver
    driver.close()


@pytest.fixture(scope="module", params=["JSON", "ROCKETMQ"])
def service(
    request: pytest.FixtureRequest, admin: Driver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """The Java client as the service, with JSON and binary headers."""
    driver = signing(tmp_path_factory.mktemp("service"), "service", request.param)
    yield driver
    driver.close()


def where(cluster: Cluster, topic: str = "orders") -> Json:
    return {"namesrv": cluster.namesrv.address, "topic": topic}


def test_the_java_client_sends_and_consumes_with_an_account(
    service: Driver, guarded: Cluster
) -> None:
    service.call("consumerStart", id="c", group="billing", instances=2, **where(guarded))
    for mode in ("sync", "async", "oneway"):
        sent = service.call("load", mode=mode, count=30, size=40, **where(guarded))
        assert sent["ok"] == 30, sent
    batch = [message("orders", b"%d|" % (1_000 + number)) for number in range(5)]
    service.call("batch", messages=batch, **where(guarded))
    service.call("consumerWait", id="c", expected=35, timeoutMs=60_000, quietMs=500)
    seen = service.call("consumerStop", id="c")
    assert seen["distinct"] >= 35, seen


def test_the_java_client_ends_transactions_and_answers_checks_with_an_account(
    service: Driver, guarded: Cluster
) -> None:
    names = {"id": "t", "group": "paying", **where(guarded)}
    service.call("transactionStart", **names)
    service.call("transactionAnswer", id="t", answer="COMMIT_MESSAGE")
    messages = [
        message("orders", b"7|", properties={"local": local})
        for local in ("COMMIT_MESSAGE", "UNKNOW", "ROLLBACK_MESSAGE")
    ]
    sent = service.call("transactionSend", id="t", messages=messages)["results"]
    assert {one["status"] for one in sent} == {"SEND_OK"}
    deadline = time.monotonic() + 60
    while not service.call("transactionChecks", id="t")["checks"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    service.call("transactionStop", id="t")


def test_the_java_client_sends_requests_and_replies_with_an_account(
    service: Driver, guarded: Cluster
) -> None:
    names = {"id": "r", **where(guarded, "questions")}
    service.call("responderStart", group="responders", **names)
    replies = service.call("request", bodies=["one"], mode="sync", timeoutMs=60_000, **names)
    assert len(replies["replies"]) == 1
    assert "body" in replies["replies"][0], replies
    service.call("responderStop", **names)


def test_the_java_client_without_an_account_is_refused(java: Driver, guarded: Cluster) -> None:
    with pytest.raises(DriverError, match="No accessKey is configured"):
        java.call("send", messages=[message("orders", b"x")], **where(guarded))


def test_the_java_client_is_refused_without_the_permission(
    admin: Driver, guarded: Cluster, tmp_path: Path
) -> None:
    reader = signing(tmp_path, "reader-only")
    with pytest.raises(DriverError, match="No default permission for topic:orders"):
        reader.call("send", messages=[message("orders", b"x")], **where(guarded))
    out = reader.mqadmin(
        *("updateTopic", "-n", guarded.namesrv.address, "-b", guarded.broker.address, "-t", "X")
    )
    assert "Need admin permission" in out
    reader.close()


def test_the_go_client_sends_and_consumes_with_an_account(
    go: Driver, admin: Driver, guarded: Cluster
) -> None:
    account = {"accessKey": "service", "secretKey": SECRET}
    go.call(
        *("consumerStart",),
        **{"id": "g", "group": "go-billing", "instances": 1, **account, **where(guarded)},
    )
    for mode in ("sync", "batch"):
        sent = go.call("load", mode=mode, count=32, size=40, **account, **where(guarded))
        assert sent["ok"] == 32, sent
    seen = go.call("consumerWait", id="g", expected=32, timeoutMs=60_000, quietMs=500)
    go.call("consumerStop", id="g")
    assert seen["distinct"] >= 32, seen
    for wrong in ({}, {"accessKey": "service", "secretKey": "another-one"}):
        try:
            sent = go.call("load", mode="sync", count=1, size=40, **wrong, **where(guarded))
        except DriverError:
            continue
        assert sent["ok"] == 0, sent


async def test_our_client_sends_and_consumes_with_an_account(
    admin: Driver, guarded: Cluster
) -> None:
    good = Credentials(access_key="service", secret_key=SECRET)
    one = Message(topic="orders", body=b"\x00\xff signed", properties={"ü": "ö"})
    came: list[ReceivedMessage] = []
    namesrv = guarded.namesrv.address
    async with Producer(namesrv, group="p", credentials=good) as producer:
        await producer.send(one)
        await producer.send_oneway(one)
        await producer.send_many("orders", [b"a", b"b"])
    async with PushConsumer(
        namesrv,
        group="python-billing",
        topics={"orders": "*"},
        listener=came.append,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        credentials=good,
    ):
        await eventually(lambda: len(came) >= 4)
    for credentials in (Credentials(access_key="service", secret_key="another-one"), None):
        async with Producer(namesrv, group="p", credentials=credentials, retries=0) as producer:
            with pytest.raises(BrokerError, match="AclException"):
                await producer.send(one)


def test_mqadmin_prints_accounts_as_with_the_reference(admin: Driver, guarded: Cluster) -> None:
    for found, expected in zip(play(admin, guarded), json.loads(ANSWERS.read_text()), strict=True):
        assert found == expected, found[0]


def play(admin: Driver, guarded: Cluster) -> list[list[str | list[str]]]:
    """Run each command; returns the lines that it prints."""
    found: list[list[str | list[str]]] = []
    for command in ACCOUNT_COMMANDS:
        at = () if "-c" in command else ("-b", guarded.broker.address)
        out = admin.mqadmin(command[0], "-n", guarded.namesrv.address, *at, *command[1:])
        for pattern, instead in SHOWN_AS:
            out = re.sub(pattern, instead, out, flags=re.MULTILINE)
        lines = [line.strip() for line in out.splitlines() if line.strip()]
        found.append([" ".join(command), lines])
    return found


def test_mqadmin_reads_and_writes_accounts(admin: Driver, java: Driver, guarded: Cluster) -> None:
    at = ("-n", guarded.namesrv.address, "-b", guarded.broker.address)
    out = admin.mqadmin(
        *("updateAclConfig", *at, "-a", "newcomer", "-s", "hidden-from-all", "-t", "orders=PUB"),
        *("-g", "billing=SUB", "-i", "DENY", "-u", "SUB", "-w", "10.0.0.*", "-m", "false"),
    )
    assert "create or update plain access config to" in out
    shown = admin.mqadmin("getAccessConfigSubCommand", *at)
    assert "newcomer" in shown, shown
    assert "[orders=PUB]" in shown
    assert "hidden-from-all" not in shown
    assert SECRET not in shown
    versions = admin.mqadmin("clusterAclConfigVersion", *at)
    assert "plain_acl.yml" in versions
    assert "success" in versions
    white = admin.mqadmin("updateGlobalWhiteAddr", *at, "-g", "10.1.1.*,10.1.2.3")
    assert "success" in white, white
    assert "[10.1.1.*, 10.1.2.3]" in admin.mqadmin("getAccessConfigSubCommand", *at)
    assert "success" in admin.mqadmin("deleteAccessConfig", *at, "-a", "newcomer")
    assert "newcomer" not in admin.mqadmin("getAccessConfigSubCommand", *at)
    for stranger in (
        java.mqadmin("getAccessConfigSubCommand", *at),
        java.mqadmin("updateAclConfig", *at, "-a", "newcomer", "-s", "hidden-from-all"),
    ):
        assert "No accessKey is configured" in stranger
    text = (guarded.broker.folder / "plain_acl.yml").read_text()
    assert "newcomer" not in text
    assert "service" in text


def test_mqadmin_finds_messages_with_an_account(admin: Driver, guarded: Cluster) -> None:
    sent = admin.call("send", messages=[message("orders", b"9|", keys="wanted")], **where(guarded))[
        "results"
    ]
    (one,) = sent
    at = ("-n", guarded.namesrv.address)
    by_id = admin.mqadmin("queryMsgById", *at, "-i", one["offsetMsgId"])
    assert "wanted" in by_id, by_id
    by_key = admin.mqadmin("queryMsgByKey", *at, "-t", "orders", "-k", "wanted")
    assert one["msgId"] in by_key, by_key
    by_unique = admin.mqadmin("queryMsgByUniqueKey", *at, "-t", "orders", "-i", one["msgId"])
    assert "wanted" in by_unique, by_unique
    status = admin.mqadmin("topicStatus", *at, "-t", "orders")
    assert "broker-guarded" in status, status


def test_our_commands_sign_their_requests(
    guarded: Cluster, admin: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONGREVE_SECRET_KEY", SECRET)

    def command(*arguments: str, key: str | None = "administrator") -> Result:
        account = () if key is None else ("--access-key", key)
        where = ("-n", guarded.namesrv.address, *account)
        return CliRunner().invoke(cli, [*arguments, *where])

    guarded.create_topic(admin, "commanded", queues=1)
    sent = command("send", "-t", "commanded", "-m", "by a command")
    assert sent.exit_code == 0, sent.output
    read = command("cat", "-t", "commanded", "-o", "beginning", "-e")
    assert "by a command" in read.output
    for other in (("topic", "list"), ("group", "list"), ("dlq", "groups"), ("timers", "list")):
        found = command(*other)
        assert found.exit_code == 0, (other, found.output)
    assert command("send", "-t", "commanded", "-m", "unsigned", key=None).exit_code != 0
    monkeypatch.delenv("CONGREVE_SECRET_KEY")
    assert "set the environment variable" in command("topic", "list").output
