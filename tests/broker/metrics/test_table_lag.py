"""The lag of the tables of lakeTopics in /metrics."""

from congreve.base.clock import ManualClock
from congreve.broker.metrics.exposition import Family
from congreve.broker.metrics.table_lag import TableLag
from congreve.engine.state.exported import ExportedFile, ExportedQueue, ExportedTopic

from ..tool import config_of, running

BEGIN_MS = 1_700_000_000_000


def figures(lag: TableLag) -> dict[str, list[tuple[str, float]]]:
    lag.refresh()
    return {family.name: family.samples for family in lag.families() if isinstance(family, Family)}


async def test_the_lag_is_that_of_the_messages_that_the_table_lacks(tmp_path):
    clock = ManualClock(BEGIN_MS)
    async with running(config_of(tmp_path), clock=clock) as (tool, broker):
        await tool.create_topic("T")
        for _ in range(3):
            await tool.send("T")
            clock.advance(10_000)
        exported = ExportedFile(broker.store.config.own_dir)
        lag = TableLag(["T", "without-messages"], broker.store, clock)
        (queue,) = {q.queue_id for q in broker.store.queues.of_topic("T") if q.max}
        for end, behind, seconds in ((0, 3, 30), (1, 2, 20), (3, 0, 0)):
            if end:
                place = broker.store.queues.get("T", queue).place(end - 1)
                noted = ExportedTopic("table", {queue: ExportedQueue(end, place)})
                exported.replace({"T": noted})
            assert figures(lag) == {
                "congreve_table_lag_messages": [('{topic="T"}', behind)],
                "congreve_table_lag_seconds": [('{topic="T"}', seconds)],
            }
