"""A fake broker of one group, and members of that group."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from congreve.client import ConsumeFrom, ConsumerSettings, PushConsumer, Sql
from congreve.remoting.messages.bodies import HeartbeatData
from congreve.remoting.messages.command import RemotingCommand
from harness.fake_cluster import FakeBroker, FakeCluster, record

QUICK = ConsumerSettings(pause_after_error_s=0.01, suspend_s=0.01, retry_local_s=0.01)

PULL, QUERY_OFFSET, UPDATE_OFFSET, MAX_OFFSET = 11, 14, 15, 30
HEART_BEAT, UNREGISTER, SEND_BACK, MEMBERS, IDS_CHANGED = 34, 35, 36, 38, 40
LOCK, UNLOCK, SEND = 41, 42, 310


class Group(FakeBroker):
    """The fake broker of a group: its queues' records, its members, its offsets."""

    def __init__(self) -> None:
        super().__init__("a")
        self.others: list[str] = []
        self.records: dict[int, list[bytes]] = {0: [], 1: []}
        self.committed: dict[int, int] = {}
        self.failures = 0
        self._me = ""
        self.answers |= {
            HEART_BEAT: self._heartbeat,
            MEMBERS: self._members,
            QUERY_OFFSET: self._query,
            UPDATE_OFFSET: self._update,
            PULL: self._pull,
            LOCK: self._lock,
            MAX_OFFSET: lambda request: request.reply(0, ext_fields={"offset": "5"}),
        }

    def fill(self, queue_id: int, offsets: Iterable[int]) -> None:
        """Give a queue records with these offsets."""
        self.records[queue_id] = [record(i, b"%d" % i) for i in offsets]

    async def notify(self) -> None:
        """Notify all members of a change of the group."""
        for connection in self.server.connections:
            fields = {"consumerGroup": "cg"}
            connection.oneway(RemotingCommand(code=IDS_CHANGED, ext_fields=fields))

    def _heartbeat(self, request: RemotingCommand) -> RemotingCommand:
        self._me = HeartbeatData.decode(request.body).client_id
        return request.reply(0)

    def _members(self, request: RemotingCommand) -> RemotingCommand:
        ids = ",".join(f'"{one}"' for one in [self._me, *self.others])
        return request.reply(0, body=f'{{"consumerIdList":[{ids}]}}'.encode())

    def _lock(self, request: RemotingCommand) -> RemotingCommand:
        """Grant all requested locks."""
        _, _, queues = request.body.decode().partition('"mqSet":')
        return request.reply(0, body=f'{{"lockOKMQSet":{queues}'.encode())

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        offset = self.committed.get(int(request.ext_fields["queueId"]))
        if offset is None:
            return request.reply(22, "none")
        return request.reply(0, ext_fields={"offset": str(offset)})

    def _update(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        self.committed[int(fields["queueId"])] = int(fields["commitOffset"])
        return request.reply(0)

    def _pull(self, request: RemotingCommand) -> RemotingCommand | None:
        if self.failures:
            self.failures -= 1
            return request.reply(1, "set to fail")
        begin, count = (int(request.ext_fields[key]) for key in ("queueOffset", "maxMsgNums"))
        all_records = self.records[int(request.ext_fields["queueId"])]
        if begin > len(all_records):
            return self._offsets(request, 21, len(all_records))
        found = all_records[begin : begin + count]
        if not found:
            return None
        return self._offsets(request, 0, begin + len(found), b"".join(found))

    def _offsets(
        self, request: RemotingCommand, code: int, next_offset: int, body: bytes = b""
    ) -> RemotingCommand:
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": "0",
            "maxOffset": "100",
        }
        return request.reply(code, ext_fields=fields, body=body)


@asynccontextmanager
async def cluster_of(group: Group, topics: tuple[str, ...] = ("T",)) -> AsyncIterator[FakeCluster]:
    """A fake cluster of this group."""
    cluster = FakeCluster(topics=topics)
    cluster.brokers["a"] = group
    async with cluster:
        yield cluster


@asynccontextmanager
async def member(
    group: Group,
    *,
    consume_from: ConsumeFrom = ConsumeFrom.FIRST_OFFSET,
    tags: str | Sql = "*",
    settings: ConsumerSettings = QUICK,
    **options: Any,
) -> AsyncIterator[PushConsumer]:
    """A push consumer of this group."""
    async with cluster_of(group, ("T", "TBW102")) as cluster:
        consumer = PushConsumer(
            cluster.address,
            group="cg",
            topics={"T": tags},
            consume_from=consume_from,
            settings=settings,
            **options,
        )
        async with consumer:
            yield consumer


async def take(consumer: PushConsumer, count: int) -> list[bytes]:
    """Iterate until `count` messages have arrived, and mark all of them as consumed."""
    bodies: list[bytes] = []
    async with asyncio.timeout(60):
        async for message in consumer:
            bodies.append(message.body)
            if len(bodies) == count:
                consumer.done(message)
                break
    return bodies
