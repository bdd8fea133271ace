"""A store compared with a dict: after any operations both hold the same messages."""

import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from harness.stores.killed_store import copy_running
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from congreve.engine.config import StoreConfig
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record
from congreve.records.record import decode_record

TOPICS = st.sampled_from(["A", "B", "%RETRY%g"])
QUEUES = st.integers(0, 2)
BODIES = st.binary(max_size=600)


class StoreModel(RuleBasedStateMachine):
    """`model` is {(topic, queue id): {queue offset: body}}."""

    @initialize()
    def make(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.generation = 0
        self.model: dict[tuple[str, int], dict[int, bytes]] = {}
        self.next: dict[tuple[str, int], int] = {}
        self.store = self.open()

    def root(self) -> Path:
        return self.folder / str(self.generation)

    def open(self) -> MessageStore:
        config = StoreConfig(
            root_dir=str(self.root()),
            mapped_file_size_commit_log=4096,
            mapped_file_size_consume_queue=80,
            max_hash_slot_num=7,
            max_index_num=64,
            clean_resource_interval=1 << 30,
        )
        store = MessageStore(config)
        store.start()
        return store

    def took(self, topic: str, queue_id: int, bodies: list[bytes], put: Any) -> None:
        assert put.status is PutStatus.PUT_OK
        assert put.queue_offset == self.next.get((topic, queue_id), 0)
        for number, body in enumerate(bodies):
            self.model.setdefault((topic, queue_id), {})[put.queue_offset + number] = body
        self.next[topic, queue_id] = put.queue_offset + len(bodies)

    @rule(topic=TOPICS, queue_id=QUEUES, body=BODIES)
    def put(self, topic: str, queue_id: int, body: bytes) -> None:
        record = Record(topic=topic, queue_id=queue_id, body=body)
        self.took(topic, queue_id, [body], self.store.put(record))

    @rule(topic=TOPICS, queue_id=QUEUES, bodies=st.lists(BODIES, min_size=1, max_size=4))
    def put_batch(self, topic: str, queue_id: int, bodies: list[bytes]) -> None:
        batch = b"".join(
            struct.pack(">5i", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)
            for body in bodies
        )
        shared = Record(topic=topic, queue_id=queue_id, body=b"")
        self.took(topic, queue_id, bodies, self.store.put_batch(shared, batch))

    @rule()
    def checkpoint(self) -> None:
        assert self.store._housekeeping.checkpoint()

    @rule()
    def restart(self) -> None:
        self.store.close()
        assert StoreExaminer(str(self.root())).verify().problems == []
        self.store = self.open()

    @rule()
    def crash(self) -> None:
        """A kill -9: the files stay as they are, and are not closed."""
        left = self.root()
        self.generation += 1
        copy_running(left, self.root())
        self.store.close()
        shutil.rmtree(left)
        self.store = self.open()

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        for key in [key for key in self.model if key[0] == topic]:
            del self.model[key]
            del self.next[key]

    @rule()
    def lose_a_segment_to_age(self) -> None:
        if len(self.store.log.segments) < 2:
            return
        self.store._housekeeping._log.delete_oldest()
        self.store._housekeeping._follow_the_log()
        for (topic, queue_id), bodies in self.model.items():
            first = self.store.min_offset(topic, queue_id)
            self.model[topic, queue_id] = {o: b for o, b in bodies.items() if o >= first}

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "store"):
            return
        found: dict[tuple[str, int], dict[int, bytes]] = {}
        for queue in self.store.queues:
            for offset in range(queue.min, queue.max):
                record = self.store.read(queue[offset][0])
                assert record is not None
                body = decode_record(record).body
                found.setdefault((queue.topic, queue.queue_id), {})[offset] = body
        assert found == {key: bodies for key, bodies in self.model.items() if bodies}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


StoreModel.TestCase.settings = settings(max_examples=10, stateful_step_count=20)
TestStoreModel = StoreModel.TestCase
