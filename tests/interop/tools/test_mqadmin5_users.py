"""mqadmin of RocketMQ 5 manages users and access lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import servers
from harness.drivers import Driver, java5_driver

KINDS = ("congreve",)
SECRET = "a-secret-of-its-own"
ACCOUNTS = f"""
accounts:
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- {{accessKey: orders-service, secretKey: {SECRET}, topicPerms: [orders=PUB|SUB]}}
"""


@pytest.fixture
def guarded(kind: str, namesrv: servers.Server, tmp_path: Path) -> Iterator[servers.BrokerServer]:
    """A broker with accounts."""
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    settings = {
        "aclEnable": "true",
        "aclOpenNameServers": "true",
        "brokerAccessKey": "administrator",
    }
    broker = servers.broker(kind, folder, namesrv.address, broker_name="b-5", settings=settings)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def mqadmin(tmp_path: Path) -> Iterator[Driver]:
    """mqadmin as the administrator."""
    conf = tmp_path / "driver" / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "tools.yml").write_text(f"accessKey: administrator\nsecretKey: {SECRET}\n")
    driver = java5_driver(tmp_path / "driver")
    yield driver
    driver.close()


def words(text: str, name: str) -> list[str]:
    """The words of the line that begins with a name."""
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def test_users_and_access_lists(mqadmin: Driver, guarded: servers.BrokerServer) -> None:
    def run(command: str, *args: str) -> str:
        return mqadmin.mqadmin(command, "-b", guarded.address, *args)

    assert "success" in run("createUser", "-u", "new-user", "-p", SECRET, "-t", "Normal")
    subject = ("-s", "User:new-user")
    assert "success" in run("createAcl", *subject, "-r", "*", "-a", "Pub,Sub", "-d", "Allow")
    limited = ("-r", "Topic:o*", "-a", "Pub", "-i", "10.0.0.0/8,10.1.2.3", "-d", "Allow")
    assert "success" in run("updateAcl", *subject, *limited)
    assert "Topic:NAME" in run("updateAcl", *subject, "-r", "Topic:o*o", "-a", "Pub", "-d", "Allow")
    shown = " ".join(run("getAcl", *subject).split())
    assert "Topic:o* [Pub] [10.0.0.0/8, 10.1.2.3] Allow" in shown
    assert "success" in run("deleteAcl", *subject, "-r", "Topic:*")
    listed = run("listAcl")
    assert words(listed, "User:orders-service")[2:5] == ["Topic:orders", "[Pub,", "Sub]"]
    assert words(listed, "User:new-user")[2] == "Group:*"
    assert "success" in run("updateUser", "-u", "new-user", "-s", "disable")
    listed = run("listUser")
    assert words(listed, "new-user")[-2:] == ["Normal", "disable"]
    assert words(listed, "administrator")[-2:] == ["Super", "enable"]
    assert SECRET not in listed
    assert "success" in run("deleteUser", "-u", "new-user")
