"""Damage of every kind is found at its place, and is written over with another log's records."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreFormatError
from congreve.engine.scrub.damage import Damage
from congreve.engine.store import MessageStore
from congreve.io_backends.backends import BACKENDS, Options, refusal
from congreve.records.message.message import Record
from congreve.records.record import decode_record

SEGMENT = 16 << 10
MESSAGES = 120
QUEUES = 2
Harm = Callable[[bytearray, int, int], None]


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=20 * 500,
        max_hash_slot_num=100,
        max_index_num=4000,
        scrub_interval=3_600_000,
    )


def store_of(root: Path, backend: str = "mmap") -> MessageStore:
    if (reason := refusal(backend, str(root.parent))) is not None:
        pytest.skip(reason)
    made = BACKENDS[backend].make(Options(prewrites=False, locked=True))
    return MessageStore(config_of(root), backend=made, disk_use=lambda _: 0.5)


def written(root: Path, backend: str = "mmap") -> list[tuple[int, int]]:
    """A store with messages; where the records are."""
    places = []
    with store_of(root, backend) as store:
        for number in range(MESSAGES):
            body = b"%d," % number * (1 + number * 7919 % 130)
            put = store.put(Record(topic="T", body=body, queue_id=number % QUEUES))
            places.append((put.physical_offset, put.end))
        assert store.wait_durable(put.end, 60)
    return places


def harm(root: Path, begin: int, end: int, how: Harm) -> None:
    base = begin // SEGMENT * SEGMENT
    path = root / "commitlog" / f"{base:020d}"
    with path.open("r+b") as file:
        data = bytearray(file.read())
        how(data, begin - base, end - base)
        file.seek(0)
        file.write(data)


def flip_body(data: bytearray, begin: int, end: int) -> None:
    data[begin + 90] ^= 0x10


def flip_size(data: bytearray, begin: int, end: int) -> None:
    data[begin + 2] ^= 0x10


def zero(data: bytearray, begin: int, end: int) -> None:
    data[begin:end] = bytes(end - begin)


def garble(data: bytearray, begin: int, end: int) -> None:
    data[begin:end] = random.Random(begin).randbytes(end - begin)


def log_of(root: Path) -> bytes:
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)


def found(store: MessageStore) -> list[Damage]:
    steps = store.scrub.examiner.steps(store.log.min_offset, store.scrub.examiner.end)
    return [step.damage for step in steps if step.damage is not None]


def pulled(store: MessageStore) -> int:
    """Where the record of the first message of a pull begins."""
    got = store.get("T", 0, 10, 1)
    return decode_record(b"".join(got.buffers)).physical_offset


def heal(store: MessageStore, other: MessageStore) -> None:
    for damage in found(store):
        begin = damage.begin
        while begin < damage.end:
            data = other.scrub.examiner.whole_records(begin, damage.end, 1000)
            assert data, damage
            begin = store.scrub.records.write(damage._replace(begin=begin), data)


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("how", [flip_body, flip_size, zero, garble])
def test_a_running_store_gets_the_bytes_of_another(tmp_path: Path, backend: str, how: Harm) -> None:
    places = written(tmp_path / "whole", backend)
    shutil.copytree(tmp_path / "whole", tmp_path / "other")
    with store_of(tmp_path / "whole", backend) as store:
        hurt = places[3:100:7]
        for begin, end in hurt:
            harm(tmp_path / "whole", begin, end, how)
        assert [(each.begin, each.end) for each in found(store)] == hurt
        with store_of(tmp_path / "other") as other:
            heal(store, other)
        assert not found(store)
        assert log_of(tmp_path / "whole") == log_of(tmp_path / "other")
        for number, (begin, end) in enumerate(places):
            assert len(store.log.read(begin) or b"") == end - begin, number


def test_a_whole_segment_is_written_again(tmp_path: Path) -> None:
    written(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "other")
    with store_of(tmp_path / "whole") as store, store_of(tmp_path / "other") as other:
        harm(tmp_path / "whole", SEGMENT, 2 * SEGMENT, zero)
        (damage,) = found(store)
        assert (damage.begin, damage.end) == (SEGMENT, 2 * SEGMENT)
        heal(store, other)
        assert log_of(tmp_path / "whole") == log_of(tmp_path / "other")


def test_entries_that_recovery_gave_up_lead_to_their_records_again(tmp_path: Path) -> None:
    places = written(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "other")
    (tmp_path / "whole/congreve/queues.json").unlink()
    begin, end = places[20]
    harm(tmp_path / "whole", begin, end, garble)
    with store_of(tmp_path / "whole") as store, store_of(tmp_path / "other") as other:
        assert store.recovery is not None and store.recovery.damaged_places == (begin,)
        assert pulled(store) != begin
        heal(store, other)
        assert pulled(store) == begin


def test_bytes_of_another_place_are_refused(tmp_path: Path) -> None:
    places = written(tmp_path / "whole")
    (begin, end), (_, behind) = places[5], places[6]
    before = log_of(tmp_path / "whole")
    with store_of(tmp_path / "whole") as store:
        damage = Damage(begin, end, "", None)
        whole = before[begin:end]
        wrong = bytearray(whole)
        wrong[-20] ^= 1
        for data in (
            b"",
            whole[:-1],
            whole + b"\0",
            before[begin:behind],
            before[slice(*places[7])],
            bytes(len(whole)),
            bytes(wrong[:90]) + b"?" + bytes(wrong[91:]),
        ):
            with pytest.raises(StoreFormatError):
                store.scrub.records.write(damage, data)
        assert log_of(tmp_path / "whole") == before


def test_what_is_not_confirmed_is_not_given(tmp_path: Path) -> None:
    places = written(tmp_path / "whole")
    with store_of(tmp_path / "whole") as store:
        begin, end = places[50]
        store.show_below(end)
        record = log_of(tmp_path / "whole")[begin:end]
        assert store.scrub.examiner.whole_records(begin, 1 << 60, 1 << 20) == record
        store.show_below(end - 1)
        assert store.scrub.examiner.whole_records(begin, 1 << 60, 1 << 20) == b""
