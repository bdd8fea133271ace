"""Generated requests: compiled code stores and answers the same bytes as the Python handlers.

The main port has compiled code in front of the handlers; the VIP port has only the handlers (and
no pulls). The clock is stopped, so that stored times are equal.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.broker.broker import Broker
from congreve.records.message import properties as names
from congreve.records.message.flags import SysFlag
from congreve.records.message.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from congreve.records.record import decode_record
from congreve.remoting.messages.codes import SerializeType
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from .test_fastpath import CREATE, HELD_PULL, LONG, SHORT, Ports, batch_body, config_of

NOW_MS = 1_700_000_000_000
EXAMPLES = settings.default.max_examples
SEND, SEND_SHORT, SEND_BATCH, PULL, END = 10, 310, 320, 11, 37
# Fields of a record that differ between equal sends: its offsets, and the sender's port.
OWN_FIELDS = ((20, 36), (52, 56))

plain_values = st.sampled_from(["a", "k 1", "true", "\u00e4\U0001f600", "0", "v" * 300])
odd_values = st.sampled_from(
    [
        *("", "false", "TRUE", "soon", "a\x01b", "-1", "+2"),
        *("1", "3", "007", "99", "32767", "86400000", "9" * 18, "9" * 19),
        *(str(NOW_MS), str(NOW_MS + 86_400_000)),
    ]
)
PLAIN_NAMES = {names.KEYS, names.TAGS, names.UNIQ_KEY, "a", "TIMER", "DELAYS"}
plain_names = st.sampled_from(sorted(PLAIN_NAMES))
odd_names = st.sampled_from([*sorted(names.NAMES), "TIMER_", "TIMER_X", ""])
ordinary = st.tuples(plain_names, plain_values)
odd = st.tuples(odd_names, st.one_of(plain_values, odd_values))
waiting = st.one_of(
    st.tuples(st.just(names.DELAY), st.sampled_from(["1", "3", "99"])),
    st.tuples(
        st.just(names.DELAY),
        st.sampled_from(["4x", " 1", "0x1", "+1", "-1", "+", "0", "2147483648", "\u0663", "1_0"]),
    ),
    st.tuples(st.just(names.TIMER_DELIVER_MS), st.just(str(NOW_MS + 86_400_000))),
    st.tuples(st.sampled_from([names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC]), st.just("86400")),
    st.tuples(st.just(names.WAIT), st.sampled_from(["true", "false"])),
    st.tuples(st.just(names.PRIORITY), st.sampled_from(["0", "1", "9", "007", "+1"])),
)
fragments = st.sampled_from(["", "\x01", "alone", "\x01x", "k\x01"])


@st.composite
def properties(draw: st.DrawFn) -> str:
    """Encoded properties: mostly ordinary ones, in any order, sometimes with an unusual part."""
    pairs = draw(st.lists(st.one_of(ordinary, ordinary, waiting, odd), max_size=4))
    pieces = [f"{name}\x01{value}" for name, value in pairs]
    pieces += draw(st.lists(fragments, max_size=1))
    return "\x02".join(draw(st.permutations(pieces))) + draw(st.sampled_from(["", "\x02"]))


numbers = st.one_of(
    st.integers(0, 9).map(str),
    st.sampled_from(["", "-1", "+1", "007", " 1", "1.0", "x", "2147483648", "9" * 19, "769"]),
)


def changed(fields: dict[str, str], changes: dict[str, st.SearchStrategy[str]]) -> Any:
    """The fields in any order; at most two are changed, and one may be missing or added."""
    keys = sorted(changes)

    @st.composite
    def build(draw: st.DrawFn) -> dict[str, str]:
        found = dict(fields)
        count = draw(st.sampled_from([0, 0, 0, 1, 2]))
        for key in draw(st.lists(st.sampled_from(keys), max_size=count, unique=True)):
            found[key] = draw(changes[key])
        missing = draw(st.sampled_from([*[""] * 4 * len(fields), *fields]))
        found.pop(missing, None)
        if draw(st.booleans()):
            found[draw(st.sampled_from(["x", "unknown", "\u00e4"]))] = draw(plain_values)
        order = draw(st.permutations(list(found))) if draw(st.booleans()) else list(found)
        return {key: found[key] for key in order}

    return build()


topics = st.sampled_from(
    ["T", "T", "no good", "", "SELF_TEST_TOPIC", "%RETRY%P", "%DLQ%P", "t" * 128]
)
groups = st.sampled_from(["P", "Q", "", "CLIENT_INNER_PRODUCER"])
flags = st.sampled_from(["0", "1", "2", "4", "8", "12", "16", "48", "769", "-1", "x"])
SEND_FIELDS = {
    "a": groups,
    "b": topics,
    "c": st.sampled_from(["TBW102", "T", ""]),
    "d": numbers,
    "e": numbers.filter(lambda text: text != "-1"),  # with -1 the broker chooses the queue
    "f": flags,
    "g": numbers,
    "h": numbers,
    "j": numbers,
    "k": st.sampled_from(["true", "false", "", "TRUE"]),
    "m": st.sampled_from(["true", "false", "", "no"]),
}
LONG_OF_SHORT = dict(zip(SHORT, LONG, strict=True))
bodies = st.binary(max_size=40)


@st.composite
def sends(draw: st.DrawFn) -> tuple[int, dict[str, str], bytes]:
    fields = draw(changed({**SHORT, "i": draw(properties())}, SEND_FIELDS))
    kind = draw(st.sampled_from([SEND, SEND_SHORT, SEND_SHORT, SEND_BATCH]))
    if kind == SEND:
        return (
            kind,
            {LONG_OF_SHORT.get(key, key): text for key, text in fields.items()},
            draw(bodies),
        )
    if kind == SEND_SHORT:
        return kind, fields, draw(bodies)
    if fields.get("m") == "false":
        fields["m"] = "true"
    members = draw(
        st.lists(st.tuples(bodies, properties().map(str.encode)), min_size=1, max_size=3)
    )
    return kind, fields, batch_body(*members)


@st.composite
def pulls(draw: st.DrawFn) -> dict[str, str]:
    # Bit 2 of sysFlag would hold a pull that finds nothing.
    fields = HELD_PULL | {"queueId": "1", "sysFlag": "4", "maxMsgNums": "32", "subVersion": "0"}
    changes = {
        "consumerGroup": groups,
        "topic": topics,
        "queueId": numbers,
        "queueOffset": numbers,
        "maxMsgNums": numbers,
        "sysFlag": st.sampled_from(["0", "1", "4", "5", "13", "x", ""]),
        "commitOffset": numbers,
        "suspendTimeoutMillis": numbers,
        "subscription": st.sampled_from(["*", "a", "a || true", "", "||", "\u00e4\U0001f600"]),
        "subVersion": numbers,
    }
    found: dict[str, str] = draw(changed(fields, changes))
    return found


# `{}` is the half message's own offset. No other number may be the offset of a half message of one
# port and not of the other: `1{}` is beyond the end.
places = st.sampled_from(
    ["{}", "+{}", "00{}", " {}", "{}.0", "1{}", "", "-1", "x", "2147483648", "9" * 19]
)
END_FIELDS = {
    "producerGroup": groups,
    "tranStateTableOffset": places,
    "commitLogOffset": places,
    # Numbers that are neither a commit nor a rollback get no answer.
    "commitOrRollback": st.sampled_from(["8", "12", "12", "", "x"]),
    "fromTransactionCheck": st.sampled_from(["true", "false", "", "no"]),
    "msgId": plain_values,
}


def is_plain(properties: str) -> bool:
    """Whether each name occurs once, and none needs a Python handler."""
    pieces = [piece.partition("\x01")[0] for piece in properties.split("\x02")]
    return len(set(pieces)) == len(pieces) and set(pieces) <= PLAIN_NAMES


class BothPorts(Ports):
    """Sends requests to both ports; leaves out fields that differ between equal requests."""

    def records(self, start: int, exact: bool) -> list[tuple[object, ...]]:
        """The records appended from `start` on, with the tags codes of their entries.

        With `exact` their bytes, else the properties as a table: compiled code stores a name twice
        if it is sent twice, and the properties of a parked message follow.
        """
        found: list[tuple[object, ...]] = []
        while (view := self.broker.store.read(start)) is not None:
            record = bytearray(view)
            start += len(record)
            decoded = decode_record(view)
            for begin, end in OWN_FIELDS:
                record[begin:end] = bytes(end - begin)
            if decoded.topic == TRANS_OP_HALF_TOPIC:
                newest = self.broker.store.max_offset(TRANS_HALF_TOPIC, 0) - 1
                assert int(decoded.body) == newest
                record, decoded.body = bytearray(), b""
            elif decoded.prepared_offset:
                record[76:84] = bytes(8)
            tags_code = None
            if not decoded.sys_flag & SysFlag.TRANSACTION_PREPARED:  # a half message is in no queue
                queue = self.broker.store.queues.get(decoded.topic, decoded.queue_id)
                tags_code = queue[decoded.queue_offset][2]
            if exact:
                found.append((bytes(record), tags_code))
            else:
                # The record's size is at 0.
                head = bytes(record[4:88])
                found.append((head, decoded.topic, decoded.body, decoded.properties, tags_code))
        return found

    async def outcome(
        self, code: int, fields: dict[str, str], body: bytes, vip: bool, encoding: SerializeType
    ) -> tuple[RemotingCommand, tuple[object, ...]]:
        """The parts of the answer and of the stored bytes that must be the same on both ports."""
        start = self.broker.store.log.max_offset
        exact = is_plain(fields.get("properties", fields.get("i", "")))
        answer = await self.ask(code, fields, body, vip=vip, serialize_type=encoding)
        ids = answer.ext_fields.get("msgId", "").count(",")
        fields = {
            key: "" if key in ("msgId", "queueOffset") else text
            for key, text in answer.ext_fields.items()
        }
        remark = re.sub(r"\d+", "N", answer.remark or "")
        return answer, (
            *(answer.code, remark, fields, ids, answer.body),
            *(answer.flag, answer.language, answer.version, answer.serialize_type),
            self.records(start, exact),
        )


Run = Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def both_ports(root: Path) -> Iterator[tuple[Run, BothPorts]]:
    """A broker with a stopped clock, on its own loop; `run` runs a coroutine there."""
    config = config_of(root)
    config.store.message_delay_level = "10m 20m 30m 1h"
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    broker = Broker(config, clock=ManualClock(NOW_MS))
    client = RemotingClient()
    ports = BothPorts(broker, client)
    try:
        run(broker.start())
        assert run(ports.ask(17, CREATE)).code == 0
        yield run, ports
    finally:
        run(client.close())
        run(broker.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


encodings = st.sampled_from(list(SerializeType))
# The second compiled request has a header of a shape that was decoded before.
VIP_PORTS = (True, False, False)


def test_generated_sends_are_stored_and_answered_the_same(tmp_path: Path) -> None:
    with both_ports(tmp_path) as (run, ports):
        asked = 0

        @settings(max_examples=EXAMPLES)
        @given(send=sends(), encoding=encodings)
        def the_same(send: tuple[int, dict[str, str], bytes], encoding: SerializeType) -> None:
            nonlocal asked
            asked += 1
            code, fields, body = send
            by_vip, first, second = (
                run(ports.outcome(code, fields, body, vip, encoding))[1] for vip in VIP_PORTS
            )
            assert by_vip == first == second

        the_same()
        assert ports.broker._paths is not None
        stored = ports.broker._paths.stored_by_fast_path
        assert stored > asked / 5, "compiled code got too few requests"


def test_generated_pulls_are_answered_the_same(tmp_path: Path) -> None:
    with both_ports(tmp_path) as (run, ports):
        for number in range(6):
            for queue in "01":
                fields = SHORT | {"e": queue, "i": f"TAGS\x01{'a' if number % 2 else 'true'}"}
                run(ports.ask(SEND_SHORT, fields, b"body" * number))

        groups_made = 0

        @settings(max_examples=EXAMPLES)
        @given(fields=pulls(), encoding=encodings)
        def the_same(fields: dict[str, str], encoding: SerializeType) -> None:
            nonlocal groups_made
            groups_made += 1
            if fields.get("consumerGroup"):
                fields["consumerGroup"] += str(groups_made)
            # Compiled code answers a group that the handler has answered before.
            first, second, third = (
                run(ports.outcome(PULL, fields, b"", False, encoding))[1] for _ in range(3)
            )
            assert first == second == third

        the_same()
        assert ports.broker._paths is not None
        by_lanes = [lane.pulls.answered for lane in ports.broker._paths.lanes]
        assert all(answered > groups_made / 5 for answered in by_lanes), by_lanes


def test_generated_transactions_are_stored_and_answered_the_same(
    tmp_path: Path,
) -> None:
    sent = {"i": "TRAN_MSG\x01true\x02PGROUP\x01P", "f": "4"}
    with both_ports(tmp_path) as (run, ports):

        async def both(
            more: str, change: dict[str, str], encoding: SerializeType, vip: bool
        ) -> list[tuple[object, ...]]:
            fields = {**SHORT, **sent, "i": sent["i"] + more}
            half, stored = await ports.outcome(SEND_SHORT, fields, b"body", vip, encoding)
            if half.code:
                return [stored]
            place = {
                "tranStateTableOffset": half.ext_fields["queueOffset"],
                "commitLogOffset": str(int(half.ext_fields["msgId"][16:], 16)),
            }
            end = {key: text.format(place.get(key)) for key, text in change.items()}
            return [stored] + [
                (await ports.outcome(END, end, b"", vip, encoding))[1] for _ in range(2)
            ]

        plain_end = {
            "producerGroup": "P",
            "tranStateTableOffset": "{}",
            "commitLogOffset": "{}",
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "u",
        }

        @settings(max_examples=EXAMPLES)
        @given(
            more=st.one_of(st.just(""), properties().map("\x02{}".format)),
            change=changed(plain_end, END_FIELDS),
            encoding=encodings,
        )
        def the_same(more: str, change: dict[str, str], encoding: SerializeType) -> None:
            by_vip, first, second = (run(both(more, change, encoding, vip)) for vip in VIP_PORTS)
            assert by_vip == first == second

        the_same()
