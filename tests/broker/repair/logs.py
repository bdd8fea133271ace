"""The logs of running brokers, and damage to them."""

import asyncio
from pathlib import Path

from congreve.broker.broker import Broker
from congreve.client import Message, Producer


def files_of(broker: Broker) -> dict[str, bytes]:
    """The files of the log up to its end."""
    log = broker.store.log
    found = {}
    for segment in log.segments:
        used = min(log.max_offset - segment.base_offset, segment.size)
        found[Path(segment.path).name] = Path(segment.path).read_bytes()[:used]
    return found


def flip(broker: Broker, place: int) -> None:
    segment = broker.store.log.segment_at(place)
    assert segment is not None
    with Path(segment.path).open("r+b") as file:
        file.seek(place - segment.base_offset)
        byte = file.read(1)[0]
        file.seek(place - segment.base_offset)
        file.write(bytes([byte ^ 0x20]))


def records_of(broker: Broker) -> list[int]:
    """Where the records of the test's topic begin."""
    found = []
    for queue in broker.store.queues.queues_of("T"):
        found += [queue[offset][0] for offset in range(queue.min, queue.max)]
    return sorted(found)


async def filled(producer: Producer, count: int) -> None:
    """Send so many messages, some at a time."""
    for start in range(0, count, 100):
        await asyncio.gather(
            *(
                producer.send(Message(topic="T", body=b"%d" % number * 100))
                for number in range(start, min(start + 100, count))
            )
        )
