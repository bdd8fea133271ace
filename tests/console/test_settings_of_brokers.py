"""``congreve config``, ``cluster``, ``group create``, ``topic permission``, ``undeliverable``."""

import json
from pathlib import Path
from typing import Any

import pytest

from congreve.engine.config import StoreConfig
from congreve.records.message.message import Record
from congreve.records.message.topics import UNDELIVERABLE_TOPIC
from tests.console.conftest import Daemon, congreve


def rows(namesrv: str, *arguments: str) -> list[dict[str, Any]]:
    run = congreve(*arguments, "--output", "json", namesrv=namesrv)
    assert run.returncode == 0, run.stderr
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


def test_settings_are_shown_and_changed(namesrv: str) -> None:
    (row,) = rows(namesrv, "config", "show", "fileReservedTime")
    assert (row["key"], row["value"]) == ("fileReservedTime", "72")
    assert {each["key"] for each in rows(namesrv, "config", "show", "fileR*time")} == {
        "fileReservedTime"
    }
    (row,) = rows(namesrv, "config", "set", "fileReservedTime=48")
    assert (row["before"], row["after"]) == ("72", "48")
    assert rows(namesrv, "config", "show", "fileReservedTime")[0]["value"] == "48"
    for arguments, says in (
        (("show", "noSuchKey"), "no broker has a setting like noSuchKey"),
        (("show", "-b", "nobody"), "no master nobody"),
        (("set", "fileReservedTime"), "KEY=VALUE"),
        (("set", "fileReservedTime=soon"), "fileReservedTime"),
    ):
        refused = congreve("config", *arguments, namesrv=namesrv)
        assert refused.returncode != 0 and says in refused.stderr, arguments


def test_brokers_are_listed_with_versions_and_disks(namesrv: str) -> None:
    (row,) = rows(namesrv, "cluster")
    assert (row["cluster"], row["id"], row["state"]) == ("DefaultCluster", 0, "answers")
    assert row["version"].startswith("V4_9_4") and 0 <= row["disk_used"] <= 1


def test_a_group_is_created_and_changed_but_for_what_is_not_named(namesrv: str) -> None:
    (row,) = rows(namesrv, "group", "create", "billing", "--retries", "3")
    assert (row["retries"], row["retry_queues"], row["enabled"]) == (3, 1, True)
    (row,) = rows(namesrv, "group", "create", "billing", "--disable")
    assert (row["retries"], row["enabled"]) == (3, False)
    assert "billing" in {each["group"] for each in rows(namesrv, "group", "list")}
    refused = congreve("group", "create", "no good", namesrv=namesrv)
    assert (refused.returncode, "no good" in refused.stderr) == (1, True)


def test_a_topic_is_locked_and_keeps_its_queues(namesrv: str) -> None:
    rows(namesrv, "topic", "create", "locked", "-q", "3")
    (row,) = rows(namesrv, "topic", "permission", "locked", "read-only")
    assert (row["before"], row["after"]) == (6, 4)
    (row,) = rows(namesrv, "topic", "route", "locked")
    assert (row["perm"], row["read_queues"], isinstance(row["addresses"], list)) == (4, 3, True)
    refused = congreve("topic", "permission", "nowhere", "none", namesrv=namesrv)
    assert (refused.returncode, "nowhere" in refused.stderr) == (1, True)


@pytest.fixture
def with_set_aside(tmp_path: Path) -> str:
    from congreve.engine.store import MessageStore

    with MessageStore(StoreConfig(root_dir=str(tmp_path / "store"))) as store:
        for body in (b"lost", b"kept"):
            properties = {"REAL_TOPIC": "bad name", "REAL_QID": "3", "KEYS": "k", "colour": "red"}
            store.put(Record(topic=UNDELIVERABLE_TOPIC, body=body, properties=properties))
    return str(tmp_path)


def test_messages_that_were_set_aside_are_shown_and_sent_again(with_set_aside: str) -> None:
    daemon = Daemon("run", "--data", with_set_aside, "--port", "0", "--namesrv-port", "0")
    namesrv = daemon.ready.split("name server ")[1].split(",")[0]
    try:
        found = rows(namesrv, "undeliverable", "list")
        assert {(row["topic"], row["keys"], row["body"]) for row in found} == {
            *(("bad name", "k", "lost"), ("bad name", "k", "kept"))
        }
        place = next(row["place"] for row in found if row["body"] == "lost")
        (sent,) = rows(namesrv, "undeliverable", "resend", place, "-t", "good-name")
        assert sent["status"] == "SEND_OK"
        (message,) = rows(namesrv, "find", "-t", "good-name", "-k", "k")
        assert (message["body"], message["properties"]["colour"]) == ("lost", "red")
        assert not {"REAL_TOPIC", "REAL_QID"} & message["properties"].keys()
        refused = congreve("undeliverable", "resend", "x:9", "-t", "good-name", namesrv=namesrv)
        assert (refused.returncode, "no message x:9" in refused.stderr) == (1, True)
        assert len(rows(namesrv, "undeliverable", "resend", "--all", "-t", "good-name")) == 2
    finally:
        assert daemon.stop() == 0


def test_without_such_messages_there_are_none(namesrv: str) -> None:
    assert rows(namesrv, "undeliverable", "list") == []


def test_a_broker_without_a_file_names_the_option_of_its_start(namesrv: str) -> None:
    refused = congreve("config", "set", "flushDiskType=ASYNC_FLUSH", namesrv=namesrv)
    assert refused.returncode == 1
    assert "give it at the start, as in -o flushDiskType=VALUE" in refused.stderr
