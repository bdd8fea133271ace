"""A pair whose logs are damaged while it serves: each heals from the other."""

from pathlib import Path

import msgspec
import pytest
from harness.eventually import eventually
from harness.replication.pairs import Pair, running_pair

from congreve.broker.broker import Broker
from congreve.broker.repair.frames import OTHER_LOG, Fetch
from congreve.broker.replication import master_requests
from congreve.broker.replication.repair_link import REFUSAL
from congreve.client import Producer
from congreve.records.record import decode_records
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..tool import PULL_FIELDS
from .logs import files_of, filled, flip, records_of

SETTINGS = {"scrubInterval": "300", "flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER"}
SLAVE = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"}
SEGMENT = 1 << 16


async def sent(pair: Pair, count: int) -> None:
    async with Producer(pair.name_server.address, group="p") as producer:
        await filled(producer, count)


def healed(pair: Pair) -> bool:
    return files_of(pair.master) == files_of(pair.slave)


@pytest.mark.parametrize("damaged", ["master", "slave", "both"])
async def test_each_segment_with_a_flipped_bit_heals(tmp_path: Path, damaged: str) -> None:
    small = {"mappedFileSizeCommitLog": str(SEGMENT)}
    async with running_pair(
        tmp_path, master={**SETTINGS, **small}, slave={**SLAVE, **small}
    ) as pair:
        await sent(pair, 1000)
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
        await sent(pair, 100)
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


async def test_a_master_of_an_earlier_version_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_requests, "REPAIR_KEY", "unknown to it")
    async with running_pair(tmp_path, master=SETTINGS, slave=SLAVE) as pair:
        await sent(pair, 10)
        await eventually(lambda: pair.slave.replication.repair.refusal)
        figures = pair.slave.replication.state().figures()
        assert figures["haRepairs"] == f"none ({REFUSAL})"
        flip(pair.slave, records_of(pair.slave)[3] + 100)
        await eventually(lambda: pair.slave.store.scrub.damages.open)
        assert pair.master.replication.repair.peers == "none"


async def test_the_log_of_another_history_gives_nothing(tmp_path: Path) -> None:
    async with running_pair(tmp_path, master=SETTINGS, slave=SLAVE) as pair:
        await sent(pair, 10)
        await eventually(lambda: healed(pair))
        store = pair.slave.store
        begin, end = records_of(pair.slave)[3:5]
        request = Fetch(begin, end, store.log.named_record(0))
        answer = pair.master.replication.repair.answer
        assert answer(request).data == files_of(pair.slave)[f"{0:020d}"][begin:end]
        known = request.beside
        for other in (
            msgspec.structs.replace(known, store_timestamp=known.store_timestamp + 1),
            msgspec.structs.replace(known, record=known.record + 1),
            msgspec.structs.replace(known, size=1, crc=2),
        ):
            assert answer(request._replace(beside=other)) == (OTHER_LOG, begin, b"")
