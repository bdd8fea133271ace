"""Acknowledgements and changes that a lane serves, against the handler, and over TCP."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.broker.errors import RefusedError
from congreve.broker.pop.ack_processor import AckMessageProcessor
from congreve.broker.pop.lanes.acks import LaneAcks
from congreve.broker.pop.ordered import OrderedBatches
from congreve.engine.pop.in_flight import InFlight, PopWindow
from congreve.engine.pop.limits import PopLimits
from congreve.engine.pop.results import Answer
from congreve.records.message.pop_handle import PopHandle, PoppedFrom
from congreve.remoting.errors import BodyError, HeaderError
from congreve.remoting.messages.command import CommandFlag, RemotingCommand
from congreve.remoting.messages.pop_bodies import BatchAck, BatchAckMessageRequestBody

from ..tool import config_of, running
from .popping import ACK, BATCH_ACK, CHANGE, OK, Member

NOW = 100_000
POP_MS = NOW - 500
WINDOWS = [("G", "T", 0), ("G", "T", 1), ("G", "%RETRY%G_T", 0), ("g\u00fc", "t\u00f6pic", 0)]


class Handler:
    """The handler over windows of its own."""

    def __init__(self, in_flight: InFlight) -> None:
        self.sent: list[RemotingCommand] = []
        pops: Any = SimpleNamespace(
            in_flight=in_flight,
            ordered=OrderedBatches(),
            journal=SimpleNamespace(answer=lambda request, _, answer: self.sent.append(answer)),
            settled=lambda window, ordered: None,
            changed=lambda: None,
        )
        checks: Any = SimpleNamespace(known_queue=lambda topic, queue_id: None)
        store: Any = SimpleNamespace(min_offset=lambda *_: 0, max_offset=lambda *_: 100)
        self.processor = AckMessageProcessor(pops, checks, store, ManualClock(NOW))

    def answer(self, frame: bytes) -> RemotingCommand | None:
        """The answer; None if the request is refused."""
        connection: Any = None
        try:
            request = RemotingCommand.decode(frame)
            self.processor.handlers()[request.code](request, connection)
        except (RefusedError, HeaderError, BodyError):
            return None
        return self.sent.pop()


def filled(due: bool, extended: bool) -> InFlight:
    pops = InFlight(PopLimits())
    for number, key in enumerate(WINDOWS):
        window = pops.window(*key, 0)
        window.take(numpy.arange(0, 40, 1 + number % 2), 40, POP_MS, 400 if due else 60_000)
        window.take(numpy.arange(40, 50), 50, POP_MS + 1, 60_000, ordered=True)
        window.ack(6, POP_MS)
        if extended:
            window.extend(8, POP_MS, POP_MS + 7, 60_000)
    if due:
        pops.due(NOW, 30)
    return pops


def state(pops: InFlight) -> list[tuple[Any, ...]]:
    pops.settled_windows()
    return [
        (each.group, each.topic, each.queue_id, each.begin, each.messages_out(0, 99).tolist())
        for each in pops.all_windows()
    ]


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 6 + list(others))


NUMBERS = ("", "x", "-1", "007", "+3", "9" * 30, "\u0663")


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    group, topic, queue_id = draw(st.sampled_from(WINDOWS))
    offset = draw(st.integers(-1, 55))
    pop_ms = draw(mostly(POP_MS, POP_MS + 1, POP_MS + 7))
    parts = [
        draw(mostly("0", *NUMBERS)),
        draw(mostly(str(pop_ms), *NUMBERS)),
        draw(mostly("60000", "1", *NUMBERS)),
        draw(mostly("0", "999", "7", *NUMBERS)),
        draw(mostly("0", "1", "2", "3", "00", "")),
        draw(mostly("broker-a", "", "\u00e4")),
        draw(mostly(str(queue_id), *NUMBERS)),
        draw(mostly(str(offset), *NUMBERS)),
    ]
    parts = parts[: draw(mostly(8, 7, 0))] + ["more"] * draw(mostly(0, 1, 2))
    fields = {
        "consumerGroup": draw(mostly(group, "H", "")),
        "topic": draw(mostly(topic, "other", "")),
        "queueId": draw(mostly(str(queue_id), "1", *NUMBERS)),
        "extraInfo": " ".join(parts),
        "offset": draw(mostly(str(offset), *NUMBERS)),
        "invisibleTime": draw(mostly("60000", "0", "1", "43200000", "43200001", *NUMBERS)),
    }
    names = draw(st.permutations(list(fields)))
    names = names[draw(mostly(0, 1)) :]
    return RemotingCommand(
        code=draw(st.sampled_from([ACK, CHANGE])),
        opaque=draw(st.integers(0, 1 << 31 - 1)),
        flag=draw(mostly(0, int(CommandFlag.ONEWAY))),
        ext_fields={name: fields[name] for name in names},
    ).encode()


@st.composite
def acknowledgements(draw: st.DrawFn) -> dict[str, Any]:
    group, topic, queue_id = draw(st.sampled_from(WINDOWS))
    kind = "1" if topic.startswith("%RETRY%") else "0"
    start = draw(st.integers(0, 12))
    usual = draw(st.lists(st.integers(0, 9), max_size=4).map(lambda each: [2 * n for n in each]))
    offsets = draw(mostly(usual, [0, 1, 2], [40], [60], []))
    bits = sum(1 << max(offset - start, 0) for offset in set(offsets))
    text = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
    fields = {
        "b": draw(mostly(text, "", "x", "AQ", "A===", "AQ-_")),
        "c": draw(mostly(group, "H")),
        "it": draw(mostly(60_000, -1)),
        "pt": draw(mostly(POP_MS, POP_MS + 1, POP_MS + 7)),
        "q": draw(mostly(queue_id, 1, 1 << 40)),
        "r": draw(mostly(kind, "2", "3", "")),
        "rq": draw(mostly(0, 999)),
        "so": draw(mostly(start, -1)),
        "t": draw(mostly(topic.removeprefix("%RETRY%G_"), "other", 7)),
    }
    names = draw(mostly(list(fields), draw(st.permutations(list(fields)))))[draw(mostly(0, 1)) :]
    long = draw(mostly({}, {"c": "consumerGroup"}, {"so": "startOffset"}))
    more = draw(mostly({}, {"more": 1}))
    return {long.get(name, name): fields[name] for name in names} | more


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    acks = draw(st.lists(acknowledgements(), min_size=draw(mostly(1, 0)), max_size=3))
    body: dict[str, Any] = draw(mostly({"acks": acks}, {}, {"acks": None}))
    name = draw(mostly({"brokerName": "b"}, {}, {"brokerName": None}, {"more": 1}))
    body = name | body if draw(st.booleans()) else body | name
    separators = draw(mostly((",", ":"), (" , ", " : ")))
    text = json.dumps(body, separators=separators, ensure_ascii=draw(mostly(False, True)))
    return RemotingCommand(
        code=BATCH_ACK,
        opaque=draw(st.integers(0, 1 << 31 - 1)),
        flag=draw(mostly(0, int(CommandFlag.ONEWAY))),
        body=(text + draw(mostly("", " ", "x"))).encode(),
    ).encode()


@settings(deadline=None)
@given(
    st.lists(st.one_of(frames(), batches()), min_size=1, max_size=12),
    *(st.booleans(), st.booleans()),
)
def test_what_a_lane_answers_the_handler_answers_alike(requests, due, extended) -> None:
    by_lane, by_handler = filled(due, extended), filled(due, extended)
    lane, handler = LaneAcks(by_lane, ManualClock(NOW)), Handler(by_handler)
    beside_lane = Handler(by_lane)
    for frame in requests:
        before = state(by_lane)
        answer = lane.take(frame)
        if answer is None:
            assert state(by_lane) == before
            beside_lane.answer(frame)
            handler.answer(frame)
        else:
            expected = handler.answer(frame)
            assert expected is not None
            if answer:
                assert RemotingCommand.decode(answer) == RemotingCommand.decode(expected.encode())
            assert bool(answer) != RemotingCommand.decode(frame).is_oneway
        assert state(by_lane) == state(by_handler)


def request(
    window: PopWindow, offset: int, pop_ms: int, revive_queue_id: int = 0, code: int = ACK
) -> bytes:
    handle = PopHandle(
        start_offset=0,
        pop_ms=pop_ms,
        invisible_ms=60_000,
        revive_queue_id=revive_queue_id,
        kind=PoppedFrom.of(window.topic),
        broker_name="b",
        queue_id=window.queue_id,
        offset=offset,
    ).encode()
    fields = {"consumerGroup": window.group, "topic": window.topic, "extraInfo": handle}
    fields |= {"queueId": str(window.queue_id), "offset": str(offset), "invisibleTime": "60000"}
    return RemotingCommand(code=code, ext_fields=fields).encode()


def test_a_lane_serves_ordinary_acknowledgements_only() -> None:
    pops = filled(due=False, extended=False)
    lane = LaneAcks(pops, ManualClock(NOW))
    for window in pops.all_windows():
        assert lane.take(request(window, 0, POP_MS)) is not None
        # Repeated, by an older handle, of an ordered pop, of no pop.
        assert lane.take(request(window, 0, POP_MS)) is None
        assert lane.take(request(window, 2, POP_MS - 1)) is None
        assert lane.take(request(window, 2, POP_MS, revive_queue_id=999)) is None
        assert lane.take(request(window, 41, POP_MS + 1)) is None
        assert lane.take(request(window, 60, POP_MS)) is None
    window = pops.window("G", "T", 0, 0)
    # Its copy may be on its way to the retry topic: only the event loop knows.
    due = pops.due(NOW * 2, 1 << 10)
    assert {row[0] for each, rows in due if each is window for row in rows.tolist()} >= {1, 2}
    assert lane.take(request(window, 1, POP_MS)) is None
    pops.drop_group("G")
    assert lane.take(request(window, 2, POP_MS)) is None


def batch(*acks: BatchAck) -> bytes:
    body = BatchAckMessageRequestBody(broker_name="b", acks=list(acks)).encode()
    return RemotingCommand(code=BATCH_ACK, body=body).encode()


def of(window: PopWindow, *offsets: int, pop_ms: int = POP_MS, ordered: bool = False) -> BatchAck:
    """An acknowledgement as our client writes it."""
    kind = PoppedFrom.of(window.topic)
    return BatchAck.of(
        offsets,
        start_offset=0,
        consumer_group=window.group,
        topic=window.topic if kind is PoppedFrom.TOPIC else "T",
        retry=str(int(kind)),
        queue_id=window.queue_id,
        revive_queue_id=999 if ordered else 0,
        pop_time=pop_ms,
        invisible_time=60_000,
    )


def test_a_lane_serves_a_batch_if_all_of_it_is_ordinary() -> None:
    pops = filled(due=False, extended=False)
    lane = LaneAcks(pops, ManualClock(NOW))
    windows = pops.all_windows()
    before = state(pops)
    first = [of(window, 0, 2, 20) for window in windows]
    for other in (of(windows[0], 60), of(windows[0], 6), of(windows[0], 8, pop_ms=POP_MS - 1)):
        assert lane.take(batch(*first, other)) is None
    assert lane.take(batch(*first, of(windows[0], 41, pop_ms=POP_MS + 1))) is None
    assert lane.take(batch(*first, of(windows[0], 4, ordered=True))) is None
    assert state(pops) == before
    answer = RemotingCommand.decode(lane.take(batch(*first, first[0])))
    assert (answer.code, answer.remark) == (OK, None)
    for window in windows:
        assert [window.ack(offset, POP_MS) for offset in (0, 2, 20)] == [Answer.REPEATED] * 3
    assert lane.take(batch(of(windows[1], 4))) is not None
    assert lane.take(batch(first[0])) is None


def test_changes_in_one_ms_make_different_handles() -> None:
    pops = filled(due=False, extended=False)
    window = pops.window("G", "T", 0, 0)
    lane = LaneAcks(pops, ManualClock(POP_MS))
    for pop_ms in (POP_MS, POP_MS + 1):
        answer = RemotingCommand.decode(lane.take(request(window, 2, pop_ms, code=CHANGE)))
        assert answer.ext_fields["popTime"] == str(pop_ms + 1)
    for older in (POP_MS, POP_MS + 1):
        assert lane.take(request(window, 2, older)) is None
    assert lane.take(request(window, 2, POP_MS + 2)) is not None


def test_the_begin_moves_when_the_loop_learns_of_it() -> None:
    pops = filled(due=False, extended=False)
    window = pops.window("G", "T", 0, 0)
    assert pops.settled_windows() == []
    for offset in (0, 1):
        assert LaneAcks(pops, ManualClock(NOW)).take(request(window, offset, POP_MS)) is not None
    assert window.ack(2, POP_MS) is Answer.DONE
    assert window.begin == 0
    assert pops.settled_windows() == [window]
    assert window.begin == 3
    assert pops.settled_windows() == []
    assert LaneAcks(pops, ManualClock(NOW)).take(request(window, 3, POP_MS)) is not None
    window.reset(1)
    assert window.begin == 1
    pops.drop_topic("T")
    assert pops.settled_windows() == []


async def test_a_broker_answers_from_the_lane_when_the_journal_is_written(tmp_path, monkeypatch):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=2)
        for number in range(6):
            await tool.send("T", b"%d" % number, number % 2)
        member = Member(tool)
        found = await member.pop()
        by_handler = []
        monkeypatch.setattr(broker.managers.pops, "settled", by_handler.append)
        monkeypatch.setattr(broker.managers.pops, "changed", lambda: by_handler.append(None))
        by_handler.clear()
        for message in found[2:]:
            changed = await member.change(message, 70_000)
            assert not isinstance(changed, int)
            assert await member.ack(changed) == OK
        for message in found[:2]:
            assert await member.batch_ack(message, [message.offset]) == OK
        assert by_handler == []
        offsets = broker.managers.metadata.offsets
        assert offsets.queues("G", "T") == {0: 3, 1: 3}
        assert broker.managers.pops.in_flight.out == 0
        # A repeated one is the handler's.
        assert await member.ack(found[0]) == OK
        assert await member.pop() == []
    async with running(config_of(tmp_path)) as (tool, broker):
        assert broker.managers.pops.in_flight.out == 0
        assert await Member(tool).pop() == []


async def test_what_a_lane_settles_while_the_loop_commits_stays_settled(tmp_path, monkeypatch):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        for number in range(3):
            await tool.send("T", b"%d" % number, 0)
        pop_ms = PopHandle.decode((await Member(tool).pop())[0].handle).pop_ms
        pops = broker.managers.pops
        window = pops.in_flight.find("G", "T", 0)
        lane, in_lane = LaneAcks(pops.in_flight, ManualClock(NOW)), [1]
        commits = pops._commits

        def commits_as_a_lane_settles(windows):
            for commit in commits(windows):
                while in_lane:
                    assert lane.take(request(window, in_lane.pop(), pop_ms)) is not None
                yield commit

        monkeypatch.setattr(pops, "_commits", commits_as_a_lane_settles)
        assert window.ack(0, pop_ms) is Answer.DONE
        pops.settled(window, ordered=False)
        assert in_lane == []
        assert (window.next, window.out) == (3, 1)
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 2
