"""A pair whose logs are damaged while it serves: each heals from the other."""

import asyncio
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.pairs import Pair, running_pair

from congreve.broker.broker import Broker
from congreve.client import Message, Producer
from congreve.records.record import decode_records
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..tool import PULL_FIELDS

SETTINGS = {"scrubInterval": "300", "flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"}
SLAVE = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"}
SEGMENT = 1 << 16


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


async def filled(pair: Pair, count: int) -> None:
    async with Producer(pair.name_server.address, group="p") as producer:
        for start in range(0, count, 100):
            await asyncio.gather(
                *(
                    producer.send(Message(topic="T", body=b"%d" % i * 100))
                    for i in range(start, start + 100)
                )
            )


def healed(pair: Pair) -> bool:
    return files_of(pair.master) == files_of(pair.slave)


@pytest.mark.parametrize("damaged", ["master", "slave", "both"])
async def test_each_segment_with_a_flipped_bit_heals(tmp_path: Path, damaged: str) -> None:
    small = {"mappedFileSizeCommitLog": str(SEGMENT)}
    async with running_pair(
        tmp_path, master={**SETTINGS, **small}, slave={**SLAVE, **small}
    ) as pair:
        await filled(pair, 1000)
        await eventually(lambda: healed(pair))
        before = files_of(pair.master)
        assert len(before) > 5
        places = records_of(pair.master)
        by_segment = {place // SEGMENT: place for place in places}
        for number, place in by_segment.items():
            hurt = {"master": pair.master, "slave": pair.slave}.get(
                damaged, pair.master if number % 2 else pair.slave
            )
            flip(hurt, place + 100)
        assert not healed(pair)
        await eventually(lambda: healed(pair), timeout_s=60)
        assert files_of(pair.master) == before
        both = pair.master.store.scrub.damages, pair.slave.store.scrub.damages
        await eventually(lambda: sum(each.repaired for each in both) == len(by_segment))
        assert not both[0].open and not both[1].open


async def pulled(broker: Broker) -> list[int]:
    """Where the records of the test's topic begin that pulls return, queue by queue."""
    found, client = [], RemotingClient()
    for queue in broker.store.queues.queues_of("T"):
        offset = queue.min
        while offset < queue.max:
            fields = {**PULL_FIELDS, "queueId": str(queue.queue_id), "queueOffset": str(offset)}
            request = RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=fields)
            answer = await client.invoke(broker.address, request, 30.0)
            assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
            found += [each.physical_offset for each in decode_records(answer.body)]
            assert int(answer.ext_fields["nextBeginOffset"]) > offset
            offset = int(answer.ext_fields["nextBeginOffset"])
    await client.close()
    return sorted(found)


@pytest.mark.parametrize("has_slave", [True, False])
async def test_a_pull_of_a_damaged_record_waits_for_its_repair(
    tmp_path: Path, has_slave: bool
) -> None:
    """The records were on disk before the start, so that pulls check them."""
    master = {**SETTINGS, "scrubBytesPerSecond": "0"}
    async with running_pair(tmp_path, master=master, slave=SLAVE) as pair:
        await filled(pair, 100)
        await eventually(lambda: healed(pair))
        places = records_of(pair.master)
        for place in places[::5]:
            flip(pair.master, place + 100)
    if not has_slave:
        master["brokerRole"] = "ASYNC_MASTER"
    async with running_pair(tmp_path, with_slave=has_slave, master=master, slave=SLAVE) as pair:
        damages = pair.master.store.scrub.damages
        if has_slave:
            assert await pulled(pair.master) == places
            assert (damages.repaired, damages.open) == (20, [])
        else:
            assert await pulled(pair.master) == [p for p in places if p not in places[::5]]
            assert [each.begin for each in damages.open] == places[::5]
