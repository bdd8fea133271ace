"""Message traces, as clients of all languages write them."""

import asyncio
from pathlib import Path

from harness.eventually import eventually

import congreve
from congreve.client import (
    AdminClient,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from congreve.client.admin.traces import events
from congreve.client.observability.trace import ConsumeTraceHook, TraceHook


async def test_sends_and_listeners_are_traced(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.set()

    with congreve.serve(tmp_path, flushDiskType="ASYNC_FLUSH", traceTopicEnable=True) as node:
        address = node.address
        async with AdminClient(address) as admin:
            await admin.create_topic("T", queues=1)
            async with Producer(address, group="p", hooks=[TraceHook(address, "p")]) as producer:
                sent = await producer.send(Message(topic="T", body=b"m", tags="t", keys="k1 k2"))
            async with PushConsumer(
                address,
                group="c",
                topics={"T": "*"},
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                hooks=[ConsumeTraceHook(address, "c")],
            ):
                await seen.wait()

            async def both() -> bool:
                found = await admin.traces.of_message(sent.message_id)
                return [event.is_success for event in found] == [True, True]

            await eventually(both)
            first, second = await admin.traces.of_message(sent.message_id)
            assert (first.kind, first.group, first.topic, first.tags, first.keys) == (
                *("send", "p", "T"),
                *("t", "k1 k2"),
            )
            assert (second.kind, second.group, second.retries) == ("consume", "c", 0)
            assert first in await admin.traces.of_message("k2")
            assert await admin.traces.of_message("nothing") == []


def test_records_of_all_forms_are_read() -> None:
    old = ["Pub", "1", "R", "g", "T", "M", "t", "null", "b", "3", "9", "0", "true"]
    new = [*old[:12], "OFFSET", "false", "client"]
    end = [
        "EndTransaction",
        "3",
        "R",
        "g",
        "T",
        "M",
        "t",
        "k",
        "b",
        "2",
        "TX",
        "COMMIT_MESSAGE",
        "false",
    ]
    before = ["SubBefore", "4", "R", "c", "Q", "M", "2", "k"]
    after = ["SubAfter", "Q", "M", "7", "true", "k", "0", "11", "c"]
    found = events([after, before, end, new, ["Pub", "short"], ["Other"]])
    assert [(event.kind, event.is_success, event.cost_ms) for event in found] == [
        ("send", False, 9),
        ("end of transaction", None, 0),
        ("consume", True, 7),
    ]
    assert found[1].state == "COMMIT_MESSAGE"
    assert [event.is_success for event in events([old, before])] == [True, None]
