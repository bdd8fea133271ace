"""``congreve group``, ``dlq`` and ``timers`` against a running broker."""

import json
import time
from typing import Any

import pytest

from congreve.client import (
    ConsumerSettings,
    Message,
    SyncProducer,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncShareConsumer,
)
from congreve.client.settings import ConsumeFrom
from congreve.console.report import shown_time
from tests.console.conftest import congreve


def rows(namesrv: str, *arguments: str) -> list[dict[str, Any]]:
    run = congreve(*arguments, "--output", "json", namesrv=namesrv)
    assert run.returncode == 0, run.stderr
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


def test_lag_is_listed_and_offsets_are_reset(namesrv: str) -> None:
    congreve("topic", "create", "lagging", "-q", "1", namesrv=namesrv)
    with (
        SyncProducer(namesrv, group="p") as producer,
        SyncPullConsumer(namesrv, group="slow") as consumer,
    ):
        for _ in range(3):
            producer.send(Message(topic="lagging", body=b"m"))
        (queue,) = consumer.queues("lagging")
        consumer.commit(queue, 1)
    (row,) = rows(namesrv, "group", "lag", "slow", "-t", "lagging")
    assert (row["consumed"], row["end"], row["lag"]) == (1, 3, 2)
    (row,) = rows(namesrv, "group", "reset", "slow", "-t", "lagging", "--last")
    assert (row["before"], row["after"], row["changed_by"]) == (1, 3, "broker")
    shown = congreve("group", "reset", "slow", "-t", "lagging", "--last", namesrv=namesrv)
    assert "not changed: use --apply" in shown.stderr
    rows(namesrv, "group", "reset", "slow", "-t", "lagging", "--last", "--apply")
    (row,) = rows(namesrv, "group", "lag", "slow", "-t", "lagging")
    assert row["lag"] == 0
    assert rows(namesrv, "group", "members", "slow") == []
    assert isinstance(rows(namesrv, "group", "list"), list)
    refused = congreve("group", "reset", "slow", "-t", "lagging", namesrv=namesrv)
    assert (refused.returncode, "one of --first" in refused.stderr) == (2, True)


def test_a_value_that_is_not_there_is_null_or_a_dash(namesrv: str) -> None:
    congreve("topic", "create", "half-empty", "-q", "2", namesrv=namesrv)
    congreve("send", "-t", "half-empty", "-m", "x", "-q", "0", namesrv=namesrv)
    stored, never = rows(namesrv, "topic", "stats", "half-empty")
    assert (stored["last_stored_ms"] > 1_600_000_000_000, never["last_stored_ms"]) == (True, None)
    _, *lines = congreve("topic", "stats", "half-empty", namesrv=namesrv).stdout.splitlines()
    assert [line.split()[-1] for line in lines] == [shown_time(stored["last_stored_ms"]), "-"]
    (alone,) = rows(namesrv, "replicas")
    assert alone["other_end"] is None


def test_the_lag_of_a_group_that_pops_says_what_is_out(namesrv: str) -> None:
    congreve("topic", "create", "shared-out", "-q", "1", namesrv=namesrv)
    with (
        SyncProducer(namesrv, group="p") as producer,
        SyncShareConsumer(
            namesrv,
            group="sharing",
            topics={"shared-out": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer,
    ):
        for _ in range(5):
            producer.send(Message(topic="shared-out", body=b"m"))
        first, second, _ = consumer.receive(3, wait_s=20)
        consumer.ack(second)
        (row,) = rows(namesrv, "group", "lag", "sharing", "-t", "shared-out")
        assert (row["lag"], row["in_flight"], row["ready"]) == (5, 2, 2)
        assert row["in_flight_ms"] >= 0
        assert (row["redelivered"], row["dead_letters"]) == (0, 0)
        consumer.ack(first)
        (row,) = rows(namesrv, "group", "lag", "sharing", "-t", "shared-out")
        assert (row["lag"], row["in_flight"], row["ready"]) == (3, 1, 2)


def test_dead_letters_are_counted_and_resent(namesrv: str) -> None:
    with SyncProducer(namesrv, group="p") as producer:
        producer.send(Message(topic="parcels", body=b"broken", keys="k1"))

    def refuse(message: object) -> None:
        raise ValueError

    with SyncPushConsumer(
        namesrv,
        group="post",
        topics={"parcels": "*"},
        listener=refuse,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        settings=ConsumerSettings(max_reconsume_times=0),
    ):
        deadline = time.monotonic() + 60
        while not (found := rows(namesrv, "dlq", "groups")):
            assert time.monotonic() < deadline
    assert found == [{"group": "post", "dead_letters": 1}]
    (row,) = rows(namesrv, "dlq", "list", "post")
    assert (row["topic"], row["keys"], row["body"], row["resent"]) == (
        *("parcels", "k1"),
        *("broken", False),
    )
    assert rows(namesrv, "dlq", "resend", "post")[0]["sent"] == 1
    assert rows(namesrv, "dlq", "resend", "post", "--to-group")[0]["sent_before"] == 1
    (row,) = rows(namesrv, "dlq", "count", "post")
    assert (row["count"], row["resent"]) == (1, 1)
    assert "post" in congreve("dlq", "groups", namesrv=namesrv).stdout


def test_delayed_messages_are_listed_and_recalled(namesrv: str) -> None:
    due_ms = int(time.time() * 1000) + 7_200_000
    with SyncProducer(namesrv, group="p") as producer:
        producer.send(Message(topic="later", body=b"m", keys="k", deliver_ms=due_ms))
    (row,) = rows(namesrv, "timers", "list", "-t", "later")
    assert (row["due_ms"], row["level"], row["keys"]) == (due_ms, None, "k")
    (count,) = rows(namesrv, "timers", "count")
    assert (count["hour_ms"], count["count"]) == (due_ms // 3_600_000 * 3_600_000, 1)
    assert row["handle"] in congreve("timers", "list", namesrv=namesrv).stdout, "it can be copied"
    rows(namesrv, "timers", "recall", row["handle"])
    assert rows(namesrv, "timers", "list") == []
    again = congreve("timers", "recall", row["handle"], namesrv=namesrv)
    assert (again.returncode, "no delayed message" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("group", "lag", "unknown"),
        ("group", "members", "unknown"),
        ("group", "delete", "unknown"),
        ("dlq", "count", "unknown"),
        ("dlq", "resend", "unknown"),
    ],
)
def test_an_unknown_group_is_an_error_of_one_line(namesrv: str, arguments: tuple[str, ...]) -> None:
    refused = congreve(*arguments, namesrv=namesrv)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1 and "unknown" in refused.stderr


def test_a_table_without_rows_is_a_word(namesrv: str) -> None:
    run = congreve("timers", "list", "-t", "never-used", namesrv=namesrv)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "none\n")


@pytest.mark.parametrize("option", ["--seconds=0", "--seconds=-1", "--warmup=-1"])
def test_an_invalid_duration_of_a_measurement_is_refused(option: str) -> None:
    refused = congreve("bench", option)
    assert (refused.returncode, "Error: Invalid value" in refused.stderr) == (2, True)


@pytest.mark.parametrize("when", ["soon", "2026-13-01"])
def test_an_invalid_time_is_refused(namesrv: str, when: str) -> None:
    refused = congreve("timers", "list", "--begin", when, namesrv=namesrv)
    assert (refused.returncode, when in refused.stderr) == (2, True)
