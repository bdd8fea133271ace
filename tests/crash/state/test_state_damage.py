"""Each state file of a broker, damaged in every way: it starts, serves and logs the damage once."""

import logging
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from harness.wire import SEND_MESSAGE_V2, Wire, send_fields
from wholebroker import codes
from wholebroker.administration import StateRequests
from wholebroker.checker import Found, broken, listed
from wholebroker.damage import damages
from wholebroker.history import History
from wholebroker.lives import BrokerRuns
from wholebroker.messages import QUEUES, SHARED, MessageRequests
from wholebroker.reading import read_broker
from wholebroker.session import Session

from congreve.base.errors import CongreveError
from congreve.broker.broker import Broker
from congreve.broker.broker_conf import load_config
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.metadata.journaled_file import JournaledFile
from congreve.broker.metadata.offset_file import OffsetFile
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.broker.metadata.table_file import Entry
from congreve.engine.state.sealed import seal
from congreve.engine.state.state_file import DISK, StateFile
from congreve.namesrv.kvconfig import KvConfig
from congreve.remoting.messages.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig

#: Paths in the store's folder. The content of each can be restored from its backup or the log.
FILES = [
    "config/topics.json",
    "config/subscriptionGroup.json",
    "config/consumerOffset.json",
    "config/consumerFilter.json",
    "config/delayOffset.json",
    "congreve/consumerOffset.journal",
    "congreve/topics.journal",
    "congreve/subscriptionGroup.journal",
    "congreve/deletedTopics.json",
    "congreve/transactionChecks.json",
    "congreve/queues.json",
    "congreve/index.json",
    "congreve/timer.json",
    "congreve/tuned.json",
    "checkpoint",
    "abort",
]
CONFIG = "congreve-broker.conf"
SHORT = 100
E = TypeVar("E")
DELETED = seal(b'{"topics":{"Gone":100}}')
TUNED = b'{"ioBackend":"mmap","flushDiskType":"SYNC_FLUSH","reason":"a test"}'


class StoppedBroker(NamedTuple):
    """A stopped broker, and the history of its clients."""

    folder: Path
    history: History


@pytest.fixture(scope="module")
def stopped_broker(tmp_path_factory: pytest.TempPathFactory) -> StoppedBroker:
    folder = tmp_path_factory.mktemp("stopped_broker")
    with BrokerRuns(folder, "mmap", "SYNC_FLUSH", seed=5) as lives:
        lives.use(0.5).join()
        fill_every_file(lives)
        recreate_a_topic(lives)
        assert lives.settle_and_stop() == []
        store = lives.broker.store
        (store / "abort").touch()
        (store / "congreve/tuned.json").write_bytes(TUNED)
        if not (store / "congreve/deletedTopics.json").exists():
            (store / "congreve/deletedTopics.json").write_text(DELETED)
        write_journals(store)
        for name in FILES[:5]:
            # The backup is as new as the file, so the loss of the file alone must lose nothing.
            shutil.copy(store / name, store / f"{name}.bak")
        return StoppedBroker(lives.broker.config.parent, lives.history)


def fill_every_file(lives: BrokerRuns) -> None:
    """Send rare requests, which the clients may not have sent on a busy machine."""
    with Session(lives.broker.address, lives.history) as session:
        common = (session, lives.history, random.Random(1), "filling", ["Own-filling"])
        messages, state = MessageRequests(*common), StateRequests(*common)
        for request in (
            messages.send,
            messages.transact,
            state.update_topic,
            state.update_group,
            state.update_offset,
            state.join_with_filter,
        ):
            for _ in range(8):
                request()


def recreate_a_topic(lives: BrokerRuns) -> None:
    """Recreate a topic: the messages of the first one stay in the log, and it has no new ones."""
    topics = ["Own-again"]
    with Session(lives.broker.address, lives.history) as session:
        messages = MessageRequests(session, lives.history, random.Random(1), "again", topics)
        state = StateRequests(session, lives.history, random.Random(1), "again", topics)
        for request in (state.update_topic, messages.send_to_own_topic, state.delete_topic):
            request()
        state.update_topic()


def write_journals(store: Path) -> None:
    """Changes that were acknowledged after the files were written; a clean stop leaves none."""
    write_offsets(store)
    version = DataVersion(counter=10**6, timestamp=1)
    for number in range(4):
        name = f"Journal{number}"
        topic, group = TopicConfig(topic_name=name), SubscriptionGroupConfig(group_name=name)
        append(store, "topics", Entry[TopicConfig], Entry(version, {name: topic}))
        append(
            store,
            "subscriptionGroup",
            Entry[SubscriptionGroupConfig],
            Entry(version, {name: group}),
        )


def append(store: Path, name: str, kind: type[E], entry: E) -> None:
    path, journal = store / f"config/{name}.json", store / f"congreve/{name}.journal"
    known = journal.read_bytes() if journal.exists() else b""
    file = JournaledFile(str(path), str(journal), kind, DISK)
    file.load(str, lambda _: None)
    file.append(entry)
    file.close()
    journal.write_bytes(known + journal.read_bytes())


def write_offsets(store: Path) -> None:
    offsets = ConsumerOffsetManager(BrokerConfig())
    file = OffsetFile(
        str(store / "config/consumerOffset.json"),
        str(store / "congreve/consumerOffset.journal"),
        offsets,
    )
    file.load()
    for queue_id in range(QUEUES):
        offsets.commit("Journal", SHARED, queue_id, queue_id)
        offsets.acknowledge("Journal", SHARED, queue_id)
        file.append(offsets.take_acknowledged())
    file.close()


class DamagedStores:
    """Copies of the stopped broker's store, one after the other, each with one damaged file."""

    def __init__(self, stopped_broker: StoppedBroker, folder: Path) -> None:
        self._stopped_broker = stopped_broker
        self.store = folder / "store"

    def start(self, name: str, text: bytes, *, both: bool) -> Found:
        """Damage the file (and its backup), start a broker on the store and read its state."""
        self.copy()
        (self.store / name).write_bytes(text)
        if both:
            (self.store / f"{name}.bak").write_bytes(text)
        with self.broker() as broker:
            return read_broker(broker.address, self._stopped_broker.history)

    def copy(self) -> None:
        """Restore the store."""
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.copytree(self._stopped_broker.folder / "store", self.store)

    def broker(self) -> Broker:
        """A broker on the copy, not started."""
        settings = {
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "listenPort": "0",
            "namesrvAddr": "",
            "ioBackend": "auto",
        }
        return Broker(load_config(self._stopped_broker.folder / CONFIG, settings).config)


def violations_of_the_log(wrong: list[str]) -> list[str]:
    """The violations without those of values, which only a state file holds."""
    return [fault for fault in wrong if not fault.startswith("(")]


def unclear_log_lines(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    for record in caplog.records:
        if record.exc_info:
            yield f"a traceback in the log: {record.getMessage()} {record.exc_info[1]!r}"
        elif "\n" in record.getMessage():
            yield f"more than a line in the log: {record.getMessage()[:200]}"


@pytest.mark.crash
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_state_file_prevents_no_start_and_loses_no_message(
    stopped_broker: StoppedBroker,
    image_folder: Path,
    name: str,
    kill_rounds: int,
    campaign: Callable[[str, int], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged_stores = DamagedStores(stopped_broker, image_folder)
    chance = random.Random(name)
    original = (stopped_broker.folder / "store" / name).read_bytes()
    ways = list(damages(name, original, chance, 4 if kill_rounds <= SHORT else kill_rounds // 10))
    if kill_rounds <= SHORT:
        ways = chance.sample(ways, 1)
    wrong: list[str] = []
    for way, text in ways:
        for both in (False, True):
            where = f"{name}{' and its backup' if both else ''}, {way}"
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                try:
                    found = damaged_stores.start(name, text, both=both)
                except CongreveError as error:
                    wrong.append(f"{where}: no start: {str(error)[:300]}")
                    continue
                except Exception as error:
                    error.add_note(where)
                    raise
            faults = violations_of_the_log(broken(stopped_broker.history, found, final=True))
            wrong += [
                f"{where}: {fault[:300]}" for fault in (*faults[:3], *unclear_log_lines(caplog))
            ]
        campaign(f"R11 state file damaged, {Path(name).name}", 2)
    assert not wrong, listed(wrong)


@pytest.mark.crash
def test_a_damaged_broker_conf_is_refused_in_one_line_or_accepted(
    stopped_broker: StoppedBroker,
    tmp_path: Path,
    kill_rounds: int,
    campaign: Callable[[str, int], None],
) -> None:
    """The file says where the store is: without it the broker would open another store."""
    original = (stopped_broker.folder / CONFIG).read_bytes()
    path = tmp_path / CONFIG
    for way, text in damages(CONFIG, original, random.Random(CONFIG), kill_rounds):
        path.write_bytes(text)
        try:
            load_config(path)
        except ConfigError as error:
            assert str(path) in str(error) and "\n" not in str(error), way
        campaign(f"R11 state file damaged, {CONFIG}", 1)


@pytest.mark.crash
def test_a_damaged_kv_config_falls_back_to_its_backup_or_is_empty(
    tmp_path: Path,
    kill_rounds: int,
    campaign: Callable[[str, int], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "kvConfig.json"
    original = b'{"configTable":{"N":{"k":"v","{x}":"y"}}}'
    for way, text in damages(path.name, original, random.Random(1), kill_rounds // 2):
        for both in (False, True):
            path.write_bytes(text)
            path.with_name(f"{path.name}.bak").write_bytes(text if both else original)
            settings = KvConfig(StateFile(str(path)))
            caplog.clear()
            settings.load()
            assert both or path.exists() or settings.get("N", "k") == "v", way
            assert not list(unclear_log_lines(caplog)), way
            campaign(f"R11 state file damaged, {path.name}", 1)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A folder or file that is mounted read-only; skips the test if it cannot be mounted."""
    for command in (["--bind", str(path), str(path)], ["-o", "remount,bind,ro", str(path)]):
        if subprocess.run(["mount", *command], capture_output=True, check=False).returncode != 0:
            subprocess.run(["umount", str(path)], capture_output=True, check=False)
            pytest.skip("no file system may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.crash
@pytest.mark.parametrize("name", ["config", "config/topics.json"])
def test_read_only_state_is_served_and_changes_are_refused(
    stopped_broker: StoppedBroker, image_folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    damaged_stores = DamagedStores(stopped_broker, image_folder)
    damaged_stores.copy()
    topic = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1"}
    topic |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    with (
        caplog.at_level(logging.WARNING),
        read_only(damaged_stores.store / name),
        damaged_stores.broker() as broker,
        Wire(broker.address, timeout_s=30) as wire,
    ):
        wrong = broken(
            stopped_broker.history, read_broker(broker.address, stopped_broker.history), final=True
        )
        assert [fault for fault in wrong if not fault.startswith("('kv'")] == []
        for _ in range(3):
            refused = wire.call(codes.UPDATE_AND_CREATE_TOPIC, topic)
            assert refused.code == 1 and "topics.json" in (refused.remark or "")
            assert wire.call(SEND_MESSAGE_V2, send_fields("Made", 0, {}), b"x").code != 0
            assert wire.call(SEND_MESSAGE_V2, send_fields(SHARED, 0, {}), b"x").code == 0
    assert not list(unclear_log_lines(caplog))
    with damaged_stores.broker() as broker, Wire(broker.address, timeout_s=30) as wire:
        assert wire.call(codes.UPDATE_AND_CREATE_TOPIC, topic).code == 0
