"""Delayed messages as a broker starts and stops them."""

import json
from pathlib import Path

from harness.stores.small_store import small_store

from congreve.base.clock import ManualClock
from congreve.broker.delay.service import DelayedMessages
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record


async def test_a_start_after_a_stop_reads_no_part_of_the_log(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    with MessageStore(small_store(tmp_path), clock=clock) as store:
        for body in (b"first", b"second"):
            delayed = DelayedMessages(store, clock)
            delayed.load()
            await delayed.start()
            properties = {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "0"}
            store.put(
                Record(topic="SCHEDULE_TOPIC_XXXX", queue_id=17, body=body, properties=properties)
            )
            await delayed.stop()
            saved = (tmp_path / "config" / "delayOffset.json").read_text().replace("18:", '"18":')
            assert json.loads(saved)["logEnd"] == store.log.max_offset
