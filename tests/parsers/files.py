"""Parsers of files."""

from __future__ import annotations

import mmap
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy

from congreve.base.clock import ManualClock
from congreve.base.errors import CongreveError
from congreve.broker.accounts.files import AccountFiles
from congreve.broker.config import BrokerConfig
from congreve.broker.election.complete_log import CleanStopFile
from congreve.broker.metadata.deleted_topics import DeletedTopics
from congreve.broker.metadata.filters import ConsumerFilterManager, ConsumerFilterWrapper
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.broker.metadata.journaled_file import read_journal
from congreve.broker.metadata.offsets import ConsumerOffsetManager, Line
from congreve.broker.metadata.request_modes import MessageRequestModes
from congreve.broker.metadata.table_file import Entry
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.broker.pop.snapshot_file import Snapshot
from congreve.broker.transaction.transactions import TransactionChecks
from congreve.client.consumer.offset_store import OffsetTable
from congreve.engine.config import StoreConfig
from congreve.engine.errors import PopJournalError
from congreve.engine.pop.in_flight import InFlight
from congreve.engine.pop.limits import PopLimits
from congreve.engine.recovery.scan import LogScanner
from congreve.engine.state.broker_name import BrokerNameFile
from congreve.engine.state.checkpoint import Checkpoint, QueueCheckpointFile
from congreve.engine.state.confirmed import ConfirmedFile
from congreve.engine.state.durable_mark import DurableMarkFile
from congreve.engine.state.exported import ExportedFile
from congreve.engine.state.found_damage import FoundDamage
from congreve.engine.state.identity import IdentityFile
from congreve.engine.state.left_files import LeftFilesFile
from congreve.engine.state.part_owners import PartOwnerFile
from congreve.engine.state.sealed import seal
from congreve.engine.state.sizes import SizesFile
from congreve.engine.state.tuned import load_tuned
from congreve.engine.timer.index import TimerState
from congreve.engine.timer.run import PAIR, Run
from congreve.namesrv.kvconfig import KvConfig
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages import bodies, fastjson
from congreve.remoting.messages.body import Body

from .messages import RECORDS
from .parser import Parser, field_names, text

FILE_SLOWNESS = 10
"""The parser opens files, and logs errors in them."""

_TEMPORARY = tempfile.TemporaryDirectory(prefix="congreve-parsers-")  # deleted when Python ends
FOLDER = Path(_TEMPORARY.name)


def _in_file(name: str, load: Callable[[Path], object]) -> Callable[[bytes], object]:
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)

    def parse(data: bytes) -> object:
        path.write_bytes(data)
        try:
            return load(path)
        finally:
            path.unlink(missing_ok=True)

    return parse


class _Saved:
    def __init__(self, text: str) -> None:
        self._text = text

    def load(self, parse: Callable[[str], Any]) -> object:
        return parse(self._text)

    def replace_checked(self, text: str, is_same: Callable[[str], bool]) -> None:
        raise AssertionError("nothing is saved")


def _run(path: Path) -> object:
    run = Run(str(path.parent), path.name, max(path.stat().st_size // PAIR, 1))
    return (run.first_after(5, 5), run.last) if run.whole else None


def _replay(data: bytes) -> object:
    pops = InFlight(PopLimits(store=2_000, window=1_000))
    pops.replay(data)
    return pops.snapshot(), pops.due(1 << 62, 1_000)


def _pop_journal() -> bytes:
    """Entries of each kind."""
    pops = InFlight(PopLimits())
    window = pops.window("group", "topic", 3, 10)
    window.take(numpy.array([10, 11, 15], numpy.int64), 16, 100, 20)
    window.ack(11, 100)
    window.extend(15, 100, 110, 30)
    pops.window("group", "other", 0, 0).reset(7)
    pops.drop_topic("other")
    return pops.take_journal()


def _scan(data: bytes) -> object:
    segment = data.ljust(mmap.PAGESIZE, b"\0")
    scanner = LogScanner(report=lambda _: None)
    return scanner.scan(segment, 0, 0), scanner.resync(segment, 0, 0)


def _manager_files() -> Iterator[Parser]:
    clock = ManualClock(1_700_000_000_000)
    filters = ConsumerFilterManager(BrokerConfig(), clock, Pieces())
    managers: dict[str, tuple[Callable[[], Any], type[Body]]] = {
        "topics": (
            lambda: TopicConfigManager(BrokerConfig(), clock),
            bodies.TopicConfigSerializeWrapper,
        ),
        "groups": (
            lambda: SubscriptionGroupManager(BrokerConfig(), clock),
            bodies.SubscriptionGroupWrapper,
        ),
        "offsets": (
            lambda: ConsumerOffsetManager(BrokerConfig()),
            bodies.ConsumerOffsetSerializeWrapper,
        ),
        "filters": (lambda: filters, ConsumerFilterWrapper),
    }
    for name, (make, cls) in managers.items():
        yield Parser(
            f"file of {name}",
            (f"broker/metadata/{name}.py",),
            lambda data, make=make: make().load(text(data)),
            [b'{"%s":{}}' % field.encode() for field in field_names(cls)],
            fields=field_names(cls),
        )


def _broker_files() -> Iterator[Parser]:
    accounts = AccountFiles(str(FOLDER / "accounts"), ManualClock())
    yield Parser(
        "file of accounts",
        ("broker/accounts/files.py",),
        _in_file("accounts/plain_acl.yml", lambda _: accounts.load()),
        [
            b"globalWhiteRemoteAddresses: [10.0.0.*]\naccounts:\n- accessKey: long-enough\n"
            b"  secretKey: 12345678\n  topicPerms: [T=PUB|SUB]\ndataVersion: [{counter: 1}]\n"
        ],
        inflates=16 << 20,  # the YAML library nests calls as deep as Python lets it
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "file of transaction checks",
        ("broker/transaction/transactions.py",),
        TransactionChecks.decode,
        [b'{"%s":{"1":1}}' % field.encode() for field in field_names(TransactionChecks)],
        fields=field_names(TransactionChecks),
    )
    yield Parser(
        "file of deleted topics",
        ("broker/metadata/deleted_topics.py", "engine/state/sealed.py"),
        _in_file("deletedTopics.json", lambda path: DeletedTopics(str(path.parent)).load()),
        [seal(b'{"topics":{"T":1},"madeAgain":{"U":2}}').encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "journal of offsets",
        ("broker/metadata/journaled_file.py", "broker/metadata/offset_file.py"),
        lambda data: read_journal(data, list[Line]),
        [b"%08x%s\n" % (zlib.crc32(line), line) for line in [b'[0,[["T@G",{"0":1}]]]']],
        (CongreveError, msgspec.MsgspecError),
    )
    yield Parser(
        "journal of topics",
        ("broker/metadata/table_file.py",),
        lambda data: read_journal(data, Entry[bodies.TopicConfig]),
        [b"%08x%s\n" % (zlib.crc32(line), line) for line in [TOPICS_LINE]],
        (CongreveError, msgspec.MsgspecError),
    )
    yield Parser(
        "file of offsets", ("client/consumer/offset_store.py",), OffsetTable.decode, [b"{}"]
    )
    yield Parser(
        "file of delay offsets",
        ("broker/delay/levels.py",),
        bodies.DelayOffsetSerializeWrapper.decode,
        [b'{"offsetTable":{1:2}}'],
        fields=("offsetTable",),
    )
    yield Parser(
        "key-value settings",
        ("namesrv/kvconfig.py",),
        lambda data: KvConfig(_Saved(text(data))).load(),
        [b'{"configTable":{"N":{"k":"v"}}}'],
        fields=("configTable",),
    )


TOPICS_LINE = b'[0,[{"counter":1,"timestamp":2},{"T":{"topicName":"T","readQueueNums":4}}]]'


def _sealed_files() -> Iterator[Parser]:
    yield Parser(
        "offsets of tables",
        ("engine/state/exported.py", "engine/state/sealed.py"),
        _in_file("exported.json", lambda path: ExportedFile(str(path.parent)).load()),
        [seal(b'{"T":{"table":"5f","queues":{"0":[7,4096]}}}').encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "confirmed offset",
        ("engine/state/confirmed.py", "engine/state/sealed.py"),
        _in_file("confirmed.json", lambda path: ConfirmedFile(str(path.parent)).load()),
        [seal(b"4096").encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "identity of a store",
        ("engine/state/identity.py", "engine/state/sealed.py"),
        _in_file("identity.json", lambda path: IdentityFile(str(path.parent)).load()),
        [seal(b'"0123456789abcdef0123456789abcdef"').encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "name of a store's broker",
        ("engine/state/broker_name.py", "engine/state/sealed.py"),
        _in_file("brokerName.json", lambda path: BrokerNameFile(str(path.parent)).load()),
        [seal(b'"broker-a"').encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "sizes of a store's files",
        ("engine/state/sizes.py", "engine/state/sealed.py"),
        _in_file("sizes.json", lambda path: SizesFile(str(path.parent)).load()),
        [seal(b'{"mappedFileSizeCommitLog":33554432,"maxIndexNum":1000000}').encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "mark of a clean stop",
        ("broker/election/complete_log.py", "engine/state/sealed.py"),
        _in_file("clean-stop.json", lambda path: CleanStopFile(str(path.parent)).take()),
        [seal(b'{"store":"0123","end":4096,"epoch":3}').encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "owner of a part",
        ("engine/state/part_owners.py", "engine/state/sealed.py"),
        _in_file("commitlog.owner.json", lambda path: PartOwnerFile(str(path)[:-11]).load()),
        [seal(b'{"identity":"0123","root":"/data/store","checkpoints":7}').encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "damage that a reader has found",
        ("engine/state/found_damage.py", "engine/state/sealed.py"),
        _in_file("found-damage.json", lambda path: FoundDamage(str(path.parent)).take()),
        [seal(b"[4096,8192]").encode()],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "durable mark",
        ("engine/state/durable_mark.py", "engine/state/sealed.py"),
        _in_file("durable.json", lambda path: DurableMarkFile(str(path.parent)).load()),
        [seal(b'{"record":4096,"size":176,"crc":7,"storeTimestamp":1}').encode()],
        slowness=FILE_SLOWNESS,
    )


def _left_files() -> Iterator[Parser]:
    yield Parser(
        "files that a clean stop left",
        ("engine/state/left_files.py", "engine/state/sealed.py"),
        _in_file(
            "congreve/left-files.json",
            lambda path: LeftFilesFile(StoreConfig(root_dir=str(path.parents[1]))).changes(),
        ),
        [
            seal(
                b'{"logEnd":4096,"files":{"config/topics.json":7,"checkpoint":4294967295}}'
            ).encode()
        ],
        slowness=FILE_SLOWNESS,
    )


def _store_files() -> Iterator[Parser]:
    yield Parser("log", ("engine/recovery/scan.pyx",), _scan, RECORDS)
    checkpoint = "engine/state/checkpoint.py"
    yield Parser(
        "checkpoint",
        (checkpoint,),
        _in_file("checkpoint", lambda path: Checkpoint(str(path)).load()),
        [bytes(4096), b"\1" * 24],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "checkpoint of queues",
        (checkpoint, "engine/state/state_file.py"),
        _in_file("queues.json", lambda path: QueueCheckpointFile(str(path.parent)).load()),
        [
            b'{"logBegin":0,"logEnd":100,"lastRecord":7,"lastStoreTimestamp":9,'
            b'"queues":{"T":{"0":[1,5]}}}'
        ],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "tuned",
        ("engine/state/tuned.py", "engine/state/state_file.py"),
        _in_file("congreve/tuned.json", lambda path: load_tuned(str(path.parents[1]))),
        [b'{"ioBackend":"pool","flushDiskType":"SYNC_FLUSH","reason":"r"}'],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "timer run",
        ("engine/timer/run.py",),
        _in_file("00000000000000000001.run", _run),
        [struct.pack("<4q", 1, 2, 3, 4)],
        slowness=FILE_SLOWNESS,
    )
    yield Parser(
        "timer state",
        ("engine/timer/index.py",),
        partial(msgspec.json.decode, type=TimerState),
        [b'{"inserted":1,"runs":[["00000000000000000001.run",1]],"cursor":[[1,2,3]]}'],
        (msgspec.MsgspecError, RecursionError, UnicodeDecodeError),
    )


def _pop_files() -> Iterator[Parser]:
    yield Parser(
        "journal of pops",
        tuple(
            f"engine/pop/{name}.pyx"
            for name in ("in_flight", "journal", "changes", "window", "due_heap", "snapshot")
        ),
        _replay,
        [_pop_journal()],
        (PopJournalError,),
    )
    yield Parser(
        "pops.json",
        ("broker/pop/journal.py", "broker/pop/snapshot_file.py"),
        lambda data: InFlight(PopLimits(store=2_000, window=1_000)).restore(
            Snapshot.from_tree(fastjson.loads(text(data))).windows
        ),
        [Snapshot(next=7, at=8, windows=_pop_journal()).encode()],
    )
    yield Parser(
        "request modes",
        ("broker/metadata/request_modes.py",),
        lambda data: MessageRequestModes(BrokerConfig()).load(text(data)),
        [b'{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","topic":"T"}}}}'],
    )


def parsers() -> Iterator[Parser]:
    """All parsers of this module."""
    yield from _manager_files()
    yield from _broker_files()
    yield from _store_files()
    yield from _pop_files()
    yield from _sealed_files()
    yield from _left_files()
