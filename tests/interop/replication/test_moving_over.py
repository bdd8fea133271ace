"""The steps of docs/moving.md, with RocketMQ 4.9.4 as the master that is left and returned to."""

from __future__ import annotations

import json
import re
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness import servers
from harness.drivers import Driver, message
from harness.replication.replicas import Replicas, await_equal_logs

from congreve.console.doctor import doctor as doctor_command
from congreve.console.store import store as store_command

PAGE = Path(__file__).parents[3] / "docs" / "moving.md"
ROUND = 200


@pytest.fixture
def replicas(namesrv: servers.Server, tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(namesrv, tmp_path)
    yield made
    made.kill()


def page_settings(title: str) -> dict[str, str]:
    """The lines of a broker.conf on the page."""
    found = re.search(rf'```properties title="{title}"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    assert found, title
    lines = textwrap.dedent(found[1]).split()
    return dict(line.split("=", 1) for line in lines)


def send(java: Driver, namesrv: servers.Server, topic: str, first: int) -> None:
    sent = [message(topic, b"%d" % number) for number in range(first, first + ROUND)]
    results = java.call("send", messages=sent, namesrv=namesrv.address)["results"]
    assert {one["status"] for one in results} == {"SEND_OK"}


def bodies(java: Driver, namesrv: servers.Server, topic: str) -> list[str]:
    messages = java.call("drain", topics=[topic], namesrv=namesrv.address)["messages"]
    return sorted(one["body"] for one in messages)


def test_a_java_master_is_left_and_returned_to(
    replicas: Replicas, java: Driver, namesrv: servers.Server, tmp_path: Path
) -> None:
    topic = "moving"
    master = replicas.master("java")
    java.mqadmin(
        *("updateTopic", "-n", namesrv.address, "-b", master.address, "-t", topic, "-r", "4"),
        *("-w", "4"),
    )
    send(java, namesrv, topic, 0)

    of_slave = page_settings("slave.conf")
    of_slave["mappedFileSizeCommitLog"] = "524288"  # as the master of this test
    for key in ("brokerName", "listenPort", "namesrvAddr", "storePathRootDir"):
        del of_slave[key]
    assert_doctor(replicas, tmp_path, {**of_slave, "mappedFileSizeCommitLog": "1048576"}, "fail")
    assert_doctor(replicas, tmp_path, of_slave, "ok")
    slave = replicas.slave("congreve", **of_slave)
    send(java, namesrv, topic, ROUND)
    await_equal_logs(master, slave)

    java.mqadmin("wipeWritePerm", "-b", replicas.name, "-n", namesrv.address)
    await_table(slave, topic)
    for broker in (master, slave):
        assert broker.stop() in (0, 143), broker.tail()
    moved = start(replicas, "congreve", slave, page_settings("master.conf"))
    send(java, namesrv, topic, 2 * ROUND)

    empty = replicas.folder / "back"
    lines = CliRunner().invoke(store_command, ["info", str(moved.store)]).stdout.splitlines()
    needed = dict(line.split("=", 1) for line in lines if re.fullmatch(r"\w+=\d+", line))
    assert needed["mappedFileSizeCommitLog"] == "524288"
    back = servers.broker(
        *("java", empty, namesrv.address),
        broker_name=replicas.name,
        settings={**of_slave, **needed, "haSendHeartbeatInterval": "500"},
    )
    replicas.made.append(back)
    back.start()
    await_equal_logs(moved, back)
    await_table(back, topic)
    for broker in (moved, back):
        assert broker.stop() in (0, 143), broker.tail()
    start(replicas, "java", back, {**needed, **page_settings("master.conf")})
    send(java, namesrv, topic, 3 * ROUND)
    assert len(bodies(java, namesrv, topic)) == 4 * ROUND
    assert len(set(bodies(java, namesrv, topic))) == 4 * ROUND


def start(
    replicas: Replicas, kind: str, before: servers.BrokerServer, settings: dict[str, str]
) -> servers.BrokerServer:
    """The store of a stopped broker, at the same port."""
    broker = servers.broker(
        *(kind, before.store.parent, replicas.namesrv.address),
        broker_name=replicas.name,
        port=before.port,
        settings={"mappedFileSizeCommitLog": "524288", **settings},
    )
    replicas.made.append(broker)
    broker.start()
    return broker


def assert_doctor(replicas: Replicas, folder: Path, settings: dict[str, str], state: str) -> None:
    conf = folder / "slave.conf"
    own = {"brokerName": replicas.name, "listenPort": "0", "storePathRootDir": str(folder / "new")}
    every = {**settings, **own, "namesrvAddr": replicas.namesrv.address}
    conf.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
    done = CliRunner().invoke(doctor_command, ["-c", str(conf), "--output", "json"])
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert found["master"]["state"] == state, found["master"]


def await_table(slave: servers.BrokerServer, topic: str) -> None:
    file = slave.store / "config" / "topics.json"
    deadline = time.monotonic() + 60
    while not file.exists() or f'"{topic}"' not in file.read_text():
        assert time.monotonic() < deadline, slave.tail()
        time.sleep(0.05)
