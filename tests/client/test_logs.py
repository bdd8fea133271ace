"""Log records: text for people, fields for programs, and no work if the level is off."""

import logging

import pytest
from harness.fake_cluster import FakeCluster, refused, stored

from congreve.client import Message, Producer
from congreve.client.logs import Log


def test_records_have_text_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("congreve.client.somewhere")
    error = ValueError("broken")
    with caplog.at_level(logging.INFO):
        log.warning("pull failed", queue=3, error=error)
        log.debug("not asked for", queue=4)
    (record,) = caplog.records
    assert record.getMessage() == "pull failed: queue=3 error=broken"
    assert (record.name, record.filename) == ("congreve.client.somewhere", "test_logs.py")
    assert (record.event, record.fields) == ("pull failed", {"queue": 3, "error": error})


def test_values_are_not_formatted_if_the_level_is_off() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise AssertionError

    logging.getLogger("congreve.client.quiet").setLevel(logging.ERROR)
    Log("congreve.client.quiet").warning("nothing", value=Unprintable())


def test_tracebacks_come_with_exceptions(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise KeyError("x")
    except KeyError:
        Log("congreve.client.somewhere").exception("listener failed", messages=1)
    assert caplog.records[0].exc_info is not None


async def test_the_log_of_a_repeated_send_names_the_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCluster("a", "b") as cluster, Producer(cluster.address, group="pg") as producer:
        cluster.brokers["a"].answers[310] = refused(14)
        cluster.brokers["b"].answers[310] = stored
        with caplog.at_level(logging.INFO, "congreve.client"):
            for _ in range(16):  # all queues in turn, some of them on broker a
                await producer.send(Message(topic="T", body=b"x"))
    fields = next(
        record.fields for record in caplog.records if record.event == "send failed, trying again"
    )
    assert (fields["topic"], fields["error"].code) == ("T", 14)
