"""Pops that a lane serves: against the rule in Python, and over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.broker.broker import Broker
from congreve.broker.pop.checks import PopChecks
from congreve.broker.pop.lanes.pops import LanePops
from congreve.broker.pop.processor import PopMessageProcessor
from congreve.broker.pop.taking import PopTaking
from congreve.broker.pop.validation import PopValidation
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.pull.subscriptions import PullSubscriptions
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.broker.requests.settings import host_bytes
from congreve.records.message.message import Record
from congreve.records.message.topics import POP_TOPIC
from congreve.records.record import decode_record, decode_records, encode_record
from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..conftest import FakeConnection
from ..tool import Tool, commit, config_of, running
from .popping import NOTHING, OK, POLLING_INFO, POP, Member
from .test_switch import heart_beat, sent_back

NOW = 1_700_000_000_000
QUEUES = 3
NUMBERS = count()
EXPRESSIONS = [(None, None), ("*", "TAG"), ("A", None), ("A || B", "TAG"), ("n > 5", "SQL92")]


class Both:
    """One broker, where a lane serves the pops of one group, and the rule those of another."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        managers, config, store = broker.managers, broker.config, broker.store
        self.managers = managers
        self.clock = clock
        self.store = store
        self.pops = managers.pops
        self.first = self.journal_read = 0
        self.served = self.served_again = 0
        metadata = managers.metadata
        quotas = QuotaTable()
        subscriptions = PullSubscriptions(config, managers.members.consumers, metadata.filters)
        self.pops._timer = Mock()
        self.lane: LanePops = managers.pop_lanes.server(0, quotas).pops
        self.processor = PopMessageProcessor(
            self.pops,
            PopChecks(config, metadata, subscriptions, clock),
            PopTaking(
                *(metadata, store, managers.stats, self.pops, clock, config),
                pick=self.pick,
            ),
            PopValidation(metadata, store, managers.stats, self.pops),
            subscriptions,
            PullQuota(quotas),
            clock,
        )

    def pick(self, most: int) -> int:
        """What a lane does in turn: what comes again first, or the queue to begin with."""
        turn = self.first + 1
        return turn * 20 % 100 if most == 100 else turn % most

    async def by_rule(self, frame: bytes) -> bytes | None:
        """The answer of the handler; None if it refuses the request."""
        connection: Any = FakeConnection()
        try:
            answer = self.processor.pop(RemotingCommand.decode(frame), connection)
            if asyncio.iscoroutine(answer):
                answer = await answer
        except HeaderError:
            return None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return answer.encode() if answer is not None else b"".join(connection.written)

    async def by_lane(self, frame: bytes) -> bytes | None:
        """The answer of the lane, or of the handler if the lane does not serve the pop."""
        self.lane.turn = self.first
        answer = self.lane.take_frame(frame)
        self.served += answer is not None
        self.served_again += b"POP_CK" in (answer or b"")
        return await self.by_rule(frame) if answer is None else answer

    def state(self, group: str) -> list[tuple[Any, ...]]:
        return sorted(
            (
                each.topic.replace(group, "G"),
                each.queue_id,
                each.next,
                each.begin,
                each.messages_out(0, 999).tolist(),
            )
            for each in self.pops.in_flight.all_windows()
            if each.group == group
        )

    def redeliver(self) -> None:
        """Give both groups again what is due, in the same order."""

        due = [
            (window.group, window.topic, window.queue_id, row[0], window, row)
            for window, rows in self.pops.in_flight.due(self.clock.now(), 1 << 20)
            for row in rows
        ]
        for *_, window, row in sorted(due, key=itemgetter(slice(4))):
            assert self.pops._redeliver_one(window, row)
        for window in self.pops.in_flight.all_windows():
            self.pops.commit(window)

    def journal(self) -> bytes:
        """The entries since the last call."""
        self.pops.journal.write()
        queue = self.store.queues.get(POP_TOPIC, 0)
        begin, self.journal_read = self.journal_read, queue.max
        places = [self.store.place_of(queue, offset) for offset in range(begin, queue.max)]
        records = [decode_record(self.store.read(place)) for place in places]
        return b"".join(bytes(record.body) for record in records)

    def send_back(self, group: str, retries: str, number: int) -> None:
        """A message in a retry topic of a group, as a consumer or RocketMQ sends it back."""
        topic = retries.replace("G", group)
        self.managers.metadata.topics.create_internal(topic, 1)
        self.send(topic, 0, "A", number, RETRY_TOPIC="T")

    def send(self, topic: str, queue_id: int, tag: str, number: int, **more: str) -> None:
        properties = {"TAGS": tag, "n": str(number), **more}
        body = b"%d" % number
        self.store.put(Record(topic=topic, body=body, queue_id=queue_id, properties=properties))


@asynccontextmanager
async def both(root: Path) -> AsyncIterator[Both]:
    clock = ManualClock(NOW)
    config = config_of(root, enable_property_filter=True)
    async with running(config, clock=clock) as (tool, broker):
        await tool.create_topic("T", queues=QUEUES)
        await tool.create_topic("P", queues=QUEUES)
        topics = broker.managers.metadata.topics
        attributes = {"message.type": "PRIORITY"}
        topics.update(msgspec.structs.replace(topics.table["P"], attributes=attributes))
        yield Both(broker, clock)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Both]]:
    with asyncio.Runner() as runner:
        context = both(tmp_path_factory.mktemp("store"))
        yield runner, runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


NUMBER_TEXTS = ("", "x", "-1", "007", "+3", str(2**63 - 1), "9" * 30)


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 30 + list(others))


@st.composite
def requests(draw: st.DrawFn) -> dict[str, str]:
    expression, kind = draw(st.sampled_from(EXPRESSIONS))
    fields = {
        "topic": draw(mostly("T", "absent", *["P"] * 10)),
        "queueId": draw(mostly("-1", "3", "x", *["0", "2"] * 5)),
        "maxMsgNums": draw(mostly("8", "33", "0", "-1", *["1", "3", "32"] * 5)),
        "invisibleTime": draw(mostly("60000", "1000", "0", *NUMBER_TEXTS)),
        "pollTime": draw(mostly("0", *NUMBER_TEXTS)),
        "bornTime": draw(mostly("0", "5", str(NOW), *NUMBER_TEXTS)),
        "initMode": draw(mostly("0", "1", *NUMBER_TEXTS)),
        "order": draw(mostly("false", "TRUE")),
    }
    fields |= {} if expression is None else {"exp": expression}
    fields |= {} if kind is None else {"expType": kind}
    return fields


sends = st.tuples(
    *(st.sampled_from("TTP"), st.integers(0, QUEUES - 1)),
    *(st.sampled_from("ABC"), st.integers(0, 9)),
)
sent_again = st.tuples(
    st.sampled_from(["%RETRY%G", "%RETRY%G+T", "%RETRY%G_T", "%RETRY%G_P"]), st.integers(0, 9)
)
steps = st.one_of(
    st.lists(sends, min_size=1, max_size=20),
    requests(),
    requests(),
    st.integers(0, 2_000),
    st.integers(0, 1 << 30).map(lambda place: ("ack", place)),
    sent_again,
    sent_again,
)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, min_size=2, max_size=25))
@example([(topic, number) for number in (1, 2) for topic in ("%RETRY%G_T", "%RETRY%G+T")])
def test_a_lane_takes_what_the_rule_takes(pair, script) -> None:
    runner, both = pair
    number = next(NUMBERS)
    runner.run(play(both, script, f"L{number:06}", f"R{number:06}"))


async def play(both: Both, script: list[Any], laned: str, ruled: str) -> None:
    usual = {"queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000", "pollTime": "0"}
    usual |= {"topic": "T", "initMode": "0"}
    for step in [usual, *script, usual, usual]:
        if isinstance(step, list):
            for message in step:
                both.send(*message)
        elif isinstance(step, int):
            both.clock.advance(step)
        elif isinstance(step, dict):
            await pop_both(both, step, laned, ruled)
            await pop_both(both, step, laned, ruled)  # by then the lane knows such pops
        elif step[0] == "ack":
            ack_one(both, step[1], laned, ruled)
        else:
            both.send_back(laned, *step)
            both.send_back(ruled, *step)
        both.redeliver()
        await asyncio.sleep(0)
        assert both.state(laned) == both.state(ruled)


async def pop_both(both: Both, fields: dict[str, str], laned: str, ruled: str) -> None:
    both.first += 1
    frames = [
        RemotingCommand(code=POP, opaque=7, ext_fields={"consumerGroup": group, **fields}).encode()
        for group in (laned, ruled)
    ]
    both.journal()
    by_lane = await both.by_lane(frames[0])
    journal = both.journal().replace(laned.encode(), b"G")
    by_rule = await both.by_rule(frames[1])
    assert compared(by_lane) == compared(by_rule)
    assert journal == both.journal().replace(ruled.encode(), b"G")


def compared(answer: bytes | None) -> Any:
    """All of an answer; of messages that came again all but what differs in copies."""
    if not answer or b"POP_CK" not in answer:
        return answer
    command = RemotingCommand.decode(answer)
    records = decode_records(command.body)
    assert b"".join(map(encode_record, records)) == command.body
    for record in records:
        record.physical_offset = record.prepared_offset = 0
        for name in ("ORIGIN_GROUP", "ORIGIN_MESSAGE_ID"):
            record.properties.pop(name, None)
    return command.code, command.ext_fields, records


def ack_one(both: Both, place: int, *groups: str) -> None:
    for group in groups:
        windows = [each for each in both.pops.in_flight.all_windows() if each.group == group]
        window = sorted(windows, key=lambda each: (each.topic, each.queue_id))[place % len(windows)]
        for offset, pop_ms, *_ in window.messages_out(place % (window.next + 1), 1).tolist():
            window.ack(offset, pop_ms)
            both.pops.settled(window, ordered=False)


def test_the_comparison_covers_pops_that_the_lane_serves(pair) -> None:
    _, both = pair
    assert both.served > 20
    assert both.served_again >= 2


class Counted:
    """How many pops the event loop has served."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        take = PopTaking.take

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return take(*arguments)

        monkeypatch.setattr(PopTaking, "take", counted)


async def test_a_broker_serves_pops_in_the_lane_and_remembers_them(tmp_path, monkeypatch):
    by_loop = Counted(monkeypatch)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=2)
        await tool.send("T", b"first", 0)
        member = Member(tool)
        first = await member.pop_all(1)
        served = by_loop.count
        for number in range(40):
            await tool.send("T", b"%d" % number, number % 2)
        found = await member.pop_all(40, maxMsgNums=7)
        assert sorted(int(each.body) for each in found) == list(range(40))
        assert by_loop.count == served
        assert broker.managers.pops.in_flight.out == 41
        for message in [*first, *found[:30]]:
            assert await member.ack(message) == OK
        offsets = broker.managers.metadata.offsets.queues("G", "T")
        windows = broker.managers.pops.in_flight
        assert offsets == {queue: windows.find("G", "T", queue).begin for queue in range(2)}
        left = sorted(each.body for each in found[30:])
        monkeypatch.setattr(broker.managers.pop_lanes, "lost", lambda data: None)
    async with running(config_of(tmp_path)) as (tool, broker):
        windows = broker.managers.pops.in_flight
        rows = [windows.find("G", "T", queue).messages_out(0, 99) for queue in range(2)]
        assert sum(map(len, rows)) == len(left) == 10
        assert await Member(tool).pop() == []


async def test_what_comes_again_is_popped_after_a_lane_has_taken_it(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T", queues=1)
        member = Member(tool)
        assert await member.pop() == []
        await tool.send("T", b"again")
        assert len(await member.pop(invisibleTime=50)) == 1
        (again,) = await member.pop(pollTime=20_000)
        assert again.record.reconsume_times == 1
        assert again.topic == "%RETRY%G_T"


async def test_a_lane_follows_what_the_checks_read(tmp_path, monkeypatch):
    by_loop = Counted(monkeypatch)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        member = Member(tool)
        await member.pop()
        for number in range(6):
            await tool.send("T", b"%d" % number)
        taken = by_loop.count
        assert len(await member.pop(maxMsgNums=1)) == 1
        assert by_loop.count == taken
        # A group with members that pull is the event loop's: their offsets count.
        broker.managers.pops.note_pull("G", "T")
        assert len(await member.pop(maxMsgNums=1)) == 1
        assert by_loop.count == taken + 1
        other = Member(tool, group="H")
        assert len(await other.pop(maxMsgNums=1)) == 1
        taken = by_loop.count
        assert (await tool.ask(15, commit("H", "T", 4))).code == OK
        assert [each.body for each in await other.pop(maxMsgNums=1)] == [b"4"]
        assert by_loop.count == taken
        broker.config.broker_permission = 4
        broker.managers.pops.plans.note_change()
        assert (await other.ask()).code == 0
        broker.config.broker_permission = 2
        broker.managers.pops.plans.note_change()
        assert (await other.ask()).code == 16


async def test_what_was_sent_to_a_client_that_is_gone_comes_again(tmp_path, monkeypatch):
    by_loop = Counted(monkeypatch)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        member = Member(tool)
        await member.pop()
        await tool.send("T", b"lost")
        taken = by_loop.count
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        request = RemotingCommand(code=POP, ext_fields=member.fields())
        writer.write(request.encode())
        await writer.drain()
        assert await reader.read(4)
        assert by_loop.count == taken
        writer.close()
        (again,) = await member.pop(pollTime=20_000)
        assert again.body == b"lost"


async def test_a_stop_gives_nothing_again_that_clients_have(tmp_path):
    config = config_of(tmp_path)
    async with running(config) as (tool, broker):
        await tool.create_topic("T", queues=1)
        member = Member(tool)
        await member.pop()  # the group is known now, and lanes serve it
        await tool.send("T", b"taken")
        (found,) = await member.pop()
        await broker.stop()
    async with running(config) as (tool, _):
        member = Member(tool)
        assert await member.pop(pollTime=700) == []
        assert await member.ack(found) == OK


async def waiting(broker: Broker, number: int) -> None:
    while len(broker.managers.pops.waiting) != number:
        await asyncio.sleep(0.005)


async def test_pops_wait_in_the_lane(tmp_path, monkeypatch):
    by_loop = Counted(monkeypatch)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=2)
        member = Member(tool)
        empty = await member.ask()
        taken = by_loop.count
        pops = [asyncio.create_task(member.pop(pollTime=60_000)) for _ in range(3)]
        await waiting(broker, 3)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "-1"}
        assert (await tool.ask(POLLING_INFO, fields)).ext_fields == {"pollingNum": "3"}
        for number in range(3):
            await tool.send("T", b"%d" % number, number % 2)
            await waiting(broker, 2 - number)
        found = [message for pop in pops for message in await pop]
        assert sorted(message.body for message in found) == [b"0", b"1", b"2"]
        for message in found:
            assert await member.ack(message) == OK
        ended = await member.ask(pollTime=50)
        assert (ended.code, ended.remark) == (NOTHING, empty.remark)
        assert ended.ext_fields.pop("popTime") > empty.ext_fields.pop("popTime")
        assert ended.ext_fields == empty.ext_fields
        assert by_loop.count == taken


async def test_pops_that_wait_in_the_lane_follow_changes(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        member = Member(tool)
        await tool.send("T", b"first")
        (first,) = await member.pop()
        assert await member.ack(first) == OK
        pop = asyncio.create_task(member.pop(pollTime=60_000))
        await waiting(broker, 1)
        assert broker.managers.pops.reset("G", "T", 0, 0)
        assert [message.body for message in await pop] == [b"first"]
        refused = asyncio.create_task(member.ask(pollTime=60_000))
        await waiting(broker, 1)
        broker.managers.metadata.topics.delete("T")
        assert (await refused).code == 17


async def test_a_broker_that_stops_ends_pops_that_wait_in_the_lane(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        member = Member(tool)
        await member.pop()
        pop = asyncio.create_task(member.ask(pollTime=60_000))
        await waiting(broker, 1)
        broker._paths.dismiss_pulls()
        assert (await pop).code == NOTHING
        assert len(broker.managers.pops.waiting) == 0


async def test_pops_by_priority_stay_in_the_lane(tmp_path, monkeypatch):
    by_loop = Counted(monkeypatch)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=3)
        topics, groups = broker.managers.metadata.topics, broker.managers.metadata.groups
        attributes = {"message.type": "PRIORITY"}
        topics.update(msgspec.structs.replace(topics.table["T"], attributes=attributes))
        member = Member(tool)

        async def taken(*numbers: int) -> list[int]:
            for number in numbers:
                await tool.send("T", b"%d" % number, number)
            return [int((await member.pop(maxMsgNums=1))[0].body) for _ in numbers]

        assert await taken(0) == [0]
        served = by_loop.count
        assert await taken(1, 0, 2) == [2, 1, 0]
        assert (await tool.ask(25, body=b"priorityOrderAsc=false\n")).code == OK
        assert await taken(1, 0, 2) == [0, 1, 2]
        assert by_loop.count == served
        some = groups.table["G"].with_attributes({"priority.factor": "50"})
        groups.update(some)
        assert sorted(await taken(1, 0, 2)) == [0, 1, 2]
        assert by_loop.count == served + 3


async def test_pops_of_the_lane_leave_what_was_sent_back_to_the_event_loop(tmp_path, monkeypatch):
    by_loop = Counted(monkeypatch)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        member = Member(tool)

        async def by_lane() -> bool:
            served = by_loop.count
            await tool.send("T", b"new")
            assert [message.body for message in await member.pop()] == [b"new"]
            return by_loop.count == served

        assert not await by_lane()
        assert await by_lane()
        sent_back(broker, "T", b"1")
        (again,) = await member.pop(pollTime=20_000)
        assert again.body == b"1"
        assert await member.ack(again) == OK
        await by_lane()
        assert await by_lane()


async def test_pops_stay_in_the_lane_as_members_pull_what_comes_again(tmp_path, monkeypatch):
    by_loop = Counted(monkeypatch)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await heart_beat(tool, "U", "%RETRY%G")
        member = Member(tool)
        for number in (1, 2):
            sent_back(broker, "T", b"%d" % number)
            assert await member.pop() == []
            assert (await tool.ask(15, commit("G", "%RETRY%G", number))).code == OK
            assert await member.pop() == []
            served = by_loop.count
            await tool.send("T", b"new")
            assert len(await member.pop()) == 1
            assert by_loop.count == served
        # The members that pull are gone, and what they have pulled is to be pulled again.
        await heart_beat(tool, "U")
        offsets = broker.managers.metadata.offsets
        waiting_pop = asyncio.create_task(member.pop_all(2, pollTime=20_000))
        await waiting(broker, 1)
        offsets.note("G", "%RETRY%G", 0, 0)
        found = await waiting_pop
        assert sorted(message.body for message in found) == [b"1", b"2"]


async def test_a_copy_before_a_lane_writes_the_journal_comes_once_after_a_kill(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.send("T", b"x")
        assert len(await Member(tool).pop(invisibleTime=300)) == 1
        pops, store, put = broker.managers.pops, broker.store, broker.store.put

        def put_and_write(*arguments: Any, **more: Any) -> Any:
            result = put(*arguments, **more)
            queue = store.queues.get(POP_TOPIC, 0)
            pops.journal.records.write(queue, host_bytes(("127.0.0.1", 1)))
            return result

        store.put = put_and_write  # type: ignore[method-assign]
        pops.journal.write = lambda: True  # type: ignore[method-assign]
        pops.journal.writer.changed = lambda: 0  # type: ignore[method-assign]
        while pops.in_flight.out:
            await asyncio.sleep(0.01)
    async with running(config_of(tmp_path)) as (tool, broker):
        assert broker.managers.pops.in_flight.out == 0
        (again,) = await Member(tool).pop(pollTime=5_000)
        assert (again.body, again.record.reconsume_times) == (b"x", 1)


async def test_members_in_several_lanes_get_each_message_once(tmp_path):
    count = 600
    async with running(config_of(tmp_path, network_threads=3)) as (tool, broker):
        await tool.create_topic("T", queues=3)
        found: list[int] = []

        async def consume(client: RemotingClient) -> None:
            member = Member(Tool(tool.address, client))
            while len(found) < count:
                for message in await member.pop(pollTime=300, maxMsgNums=5):
                    found.append(int(message.body))
                    assert await member.ack(message) == OK
            await client.close()

        async def produce() -> None:
            for number in range(count):
                await tool.send("T", b"%d" % number, number % 3)

        await asyncio.gather(produce(), *(consume(RemotingClient()) for _ in range(6)))
        assert sorted(found) == list(range(count))
        assert broker.managers.pops.in_flight.out == 0
        offsets = broker.managers.metadata.offsets.queues("G", "T")
        assert offsets == dict.fromkeys(range(3), count // 3)
