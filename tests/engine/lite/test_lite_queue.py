"""The index of lite topics, compared with a dict."""

import tempfile
from pathlib import Path

from harness.stores.killed_store import copy_running
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from congreve.engine.config import StoreConfig
from congreve.engine.lite.lite_queue import LiteQueue, LiteState
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.message.properties import LITE_TOPIC

TOPIC = "parent"
NAMES = st.sampled_from(["a", "b", "lite-3", "x" * 64])
OFFSETS = st.integers(0, 60)


def config_of(folder: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(folder),
        mapped_file_size_commit_log=8192,
        mapped_file_size_consume_queue=200,
        clean_resource_interval=1 << 30,
    )


def put(store: MessageStore, name: str | None, topic: str = TOPIC) -> int:
    """Send a message to a lite topic; returns its offset."""
    properties = {} if name is None else {LITE_TOPIC: name}
    done = store.put(Record(topic=topic, queue_id=0, body=b"body", properties=properties))
    assert done.status is PutStatus.PUT_OK
    return done.queue_offset


class LiteModel(RuleBasedStateMachine):
    """`model` is {name: offsets}; `watched` are the watched names, `new` those with arrivals."""

    @initialize()
    def make(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.generation = 0
        self.model: dict[str, list[int]] = {}
        self.watched: set[str] = set()
        self.new: set[str] = set()
        self.behind: list[tuple[str, int]] = []
        self.open()

    def open(self) -> None:
        self.store = MessageStore(config_of(self.folder / str(self.generation)))
        self.store.start()
        self.index = LiteQueue(self.store.log, self.store.queues.get(TOPIC, 0))

    @rule(name=NAMES)
    def send(self, name: str) -> None:
        self.behind.append((name, put(self.store, name)))

    @rule(name=st.sampled_from([None, "y" * 65]))
    def send_other(self, name: str | None) -> None:
        put(self.store, name)

    @rule()
    def catch_up(self) -> None:
        while self.index.catch_up(3):
            pass
        for name, offset in self.behind:
            self.model.setdefault(name, []).append(offset)
            if name in self.watched:
                self.new.add(name)
        self.behind = []

    @rule(name=NAMES, watched=st.booleans())
    def watch(self, name: str, watched: bool) -> None:
        self.index.watch(name, watched)
        (self.watched.add if watched else self.watched.discard)(name)

    @rule()
    def arrivals(self) -> None:
        found = self.index.arrivals()
        assert len(found) == len(set(found))
        assert self.new <= set(found) | (self.new - self.watched)
        assert set(found) <= self.new
        self.new = set()

    @rule(name=NAMES)
    def forget(self, name: str) -> None:
        self.index.forget(name)
        self.model.pop(name, None)
        self.new.discard(name)

    @rule(places=st.integers(1, 3))
    def expire(self, places: int) -> None:
        """All of them, because none is as new as the end of time; some places at a time."""
        found: list[str] = []
        start, done = 0, False
        while not done:
            names, start = self.index.expire(1 << 62, start, places)
            found += names
            done = start == 0
        assert self.model.keys() <= set(found)
        assert len(found) == len(set(found))
        self.model = {}
        self.new = set()

    @rule(name=NAMES, offset=OFFSETS, most=st.integers(1, 5))
    def read(self, name: str, offset: int, most: int) -> None:
        wanted = [each for each in self.model.get(name, []) if each >= offset][:most]
        assert self.index.offsets(name, offset, most) == wanted

    @rule()
    def kill(self) -> None:
        """A start finds all that the queue has; what was forgotten comes back."""
        self.catch_up()
        root = self.folder / str(self.generation)
        self.generation += 1
        copy_running(root, self.folder / str(self.generation))
        self.store.close()
        known = self.model
        self.open()
        for name in self.watched:
            self.index.watch(name, True)
        while self.index.catch_up(1000):
            pass
        self.index.arrivals()
        self.new = set()
        names, end = self.index.names(0, 1000)
        assert end == 0
        assert known.keys() <= set(names)
        self.model = {}
        for name in names:
            self.model[name] = self.index.offsets(name, 0, 1000)
            assert self.model[name][len(self.model[name]) - len(known.get(name, [])) :] == (
                known.get(name, [])
            )

    @invariant()
    def states(self) -> None:
        assert self.index.count == len(self.model)
        for name in ("a", "b", "lite-3", "x" * 64):
            state, offsets = self.index.state(name), self.model.get(name)
            if offsets is None:
                assert state is None
            else:
                assert state is not None
                assert state[:3] == LiteState(offsets[0], offsets[-1], len(offsets), 0)[:3]

    def teardown(self) -> None:
        self.store.close()


TestLiteModel = LiteModel.TestCase
TestLiteModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
