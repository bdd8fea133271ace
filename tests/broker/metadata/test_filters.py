"""Stored filters: the reference's file, versions, and expiry."""

import threading
import time
from pathlib import Path

import pytest
from harness.slowness import limit_s

from congreve.base.clock import ManualClock
from congreve.base.table_limit import TableFullError
from congreve.broker.config import BrokerConfig
from congreve.broker.config_parts import LimitsConfig
from congreve.broker.metadata.filters import DEAD_KEPT_MS, ConsumerFilterManager, NotCompiledError
from congreve.engine.config import StoreConfig
from congreve.engine.read.reader import GetStatus
from congreve.engine.store import MessageStore
from congreve.records.filter.kinds import Compiler, compiler_of
from congreve.records.filter.syntax import FilterCompiler
from congreve.records.message.message import Record
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import SubscriptionData

STORED = (Path(__file__).parents[2] / "golden/consumerFilter.json").read_text(encoding="utf-8")


def wanted(expression: str, version: int, topic: str = "TopicTest") -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=expression, sub_version=version, expression_type="SQL92"
    )


def manager(
    now_ms: int = 1_700_000_000_456, config: BrokerConfig | None = None
) -> tuple[ConsumerFilterManager, ManualClock]:
    clock = ManualClock(now_ms)
    return ConsumerFilterManager(config or BrokerConfig(), clock, Pieces()), clock


async def test_the_file_is_written_as_the_reference_writes_it() -> None:
    filters, _ = manager()
    await filters.register("groupA", [wanted("a > 5", 1_700_000_000_400)])
    assert filters.file_text().strip() == STORED.strip()


async def test_the_parser_is_built_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def compiler(kind: str | None) -> Compiler:
        threads.append(threading.current_thread())
        return compiler_of(kind)

    monkeypatch.setattr("congreve.broker.metadata.filters.compiler_of", compiler)
    filters, _ = manager()
    for _ in range(2):
        await filters.compile("a > 5")
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


async def test_a_stored_filter_is_inactive_until_a_heartbeat_of_its_group() -> None:
    filters, _ = manager(1_700_000_100_000)
    filters.load(STORED)
    stored = filters.find("TopicTest", "groupA")
    assert stored is not None
    assert (stored.dead, stored.dead_time) == (True, 1_700_000_070_000)
    await filters.register("groupA", [wanted("a > 5", 1_700_000_000_400)])
    assert (stored.dead, stored.dead_time) == (False, 0)


@pytest.mark.parametrize("name", ["{x}", "{}", "$ref", '{"topic":"T"}'])
async def test_a_filter_with_an_odd_name_does_not_damage_the_file(name: str) -> None:
    filters, _ = manager()
    await filters.register(name, [wanted("a > 5", 1, topic=name)])
    again, _ = manager()
    again.load(filters.file_text())
    stored = again.find(name, name)
    assert stored is not None and stored.expression == "a > 5"


async def test_only_a_newer_version_replaces_an_expression() -> None:
    filters, _ = manager()
    await filters.register("g", [wanted("a > 5", 10)])
    await filters.register("g", [wanted("a > 6", 10)])
    assert filters.find("TopicTest", "g").expression == "a > 5"
    await filters.register("g", [wanted("a > 6", 11)])
    assert filters.find("TopicTest", "g").expression == "a > 6"
    await filters.register("g", [wanted("a > 6", 12)])
    assert filters.find("TopicTest", "g").client_version == 12
    await filters.register("g", [wanted("a >", 13)])
    assert filters.find("TopicTest", "g") is None


async def test_filters_without_a_subscription_become_inactive_and_are_removed_after_a_day() -> None:
    filters, clock = manager()
    await filters.register("g", [wanted("a > 5", 1), wanted("a > 5", 1, "other")])
    await filters.register("g", [wanted("a > 5", 1)])
    assert filters.find("other", "g").dead
    assert not filters.find("TopicTest", "g").dead
    filters.unregister("g")
    assert filters.find("TopicTest", "g").dead
    clock.advance(DEAD_KEPT_MS + 1)
    filters.drop_long_dead()
    assert filters.table == {}
    assert fastjson.loads(filters.file_text()) == {"filterDataByTopic": {}}


async def test_compiled_filters_are_evicted_by_their_size(monkeypatch) -> None:
    monkeypatch.setattr("congreve.broker.metadata.filters._PROGRAMS_BYTES_MAX", 1_000_000)
    filters, _ = manager()
    for number in range(20):
        texts = ",".join(f"'{number}-{i}'" for i in range(1_000))
        await filters.compile(f"a IN ({texts})")
    with pytest.raises(NotCompiledError):
        filters.program("a IN ('0-0')", "SQL92")
    kept = filters._programs
    assert 0 < len(kept) < 15
    assert sum(program.size + len(text) for text, program in kept.items()) <= 1_000_000


async def test_a_filter_of_4_mb_is_refused_and_the_heartbeat_is_answered() -> None:
    filters, _ = manager()
    await filters.register("g", [wanted("(" * 4_000_000, 1), wanted("a > 5", 1, "other")])
    assert filters.find("TopicTest", "g") is None
    assert filters.find("other", "g") is not None


async def test_filters_of_removed_groups_are_evicted_and_active_ones_are_kept() -> None:
    config = BrokerConfig(limits=LimitsConfig(max_filter_bytes=20_000))
    filters, _ = manager(config=config)
    for number in range(20):
        await filters.register(f"gone{number}", [wanted(f"a > {number}", 1)])
        filters.unregister(f"gone{number}")
    assert filters.find("TopicTest", "gone19") is not None
    assert filters.find("TopicTest", "gone0") is None
    full = 0
    for number in range(30):
        try:
            await filters.register(f"live{number}", [wanted("a > 1", 1), wanted("a > 1", 1, "b")])
        except TableFullError as error:
            assert "maxFilterBytes" in str(error)
            full += 1
    assert 0 < full < 30
    kept = [data for groups in filters.table.values() for data in groups.values()]
    assert not any(data.dead for data in kept)
    assert sum(data.memory for data in kept) == filters._bytes <= config.limits.max_filter_bytes
    filters.unregister("live0")
    await filters.register("next", [wanted("a > 1", 1), wanted("a > 1", 1, "b")])
    assert filters.find("TopicTest", "live0") is None
    for number in range(30):
        filters.unregister(f"live{number}")
    filters.unregister("next")
    assert len(filters._dead) == sum(map(len, filters.table.values()))


async def test_removing_ten_thousand_groups_scans_no_topic_for_each_of_them() -> None:
    """The time to remove a closed connection's groups must not grow with all other groups."""
    filters, _ = manager()
    for number in range(10_000):
        await filters.register(f"g{number}", [wanted("a > 5", 1, f"t{number}")])
    begun = time.thread_time()
    for number in range(1_000):
        filters.unregister(f"g{number}")
    assert time.thread_time() - begun < limit_s(0.1)  # 1 s where each looks at all topics


def test_a_scan_ends_with_its_work_where_a_filter_refuses_all(tmp_path: Path) -> None:
    config = StoreConfig(root_dir=str(tmp_path), mapped_file_size_commit_log=16 << 20)
    program = FilterCompiler().compile(" OR ".join(f"a = {number}" for number in range(300)))
    with MessageStore(config) as store:
        for number in range(2_000):
            store.put(Record(topic="T", body=b"x", properties={"a": str(1_000 + number)}))
        found = store.get("T", 0, 0, 32, None, program)
    assert found.status is GetStatus.NO_MATCHED_MESSAGE
    assert 0 < found.next_offset < 500
