"""A member of a group that pops, over TCP."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from congreve.records.message.message import Record
from congreve.records.message.pop_handle import PoppedFrom
from congreve.records.record import decode_records
from congreve.remoting.messages.command import RemotingCommand

from ..tool import Tool

POP, ACK, CHANGE, NOTIFICATION, POLLING_INFO, BATCH_ACK = (
    *(200_050, 200_051, 200_053, 200_054, 200_055),
    200_151,
)
OK, TOPIC_ABSENT, ILLEGAL, NO_MESSAGE, POLLING_FULL, NOTHING = 0, 17, 13, 208, 209, 210


@dataclass(frozen=True)
class Popped:
    """One message with what its acknowledgement needs."""

    record: Record
    topic: str
    queue_id: int
    offset: int
    handle: str
    attempts: int = 0

    @property
    def body(self) -> bytes:
        return self.record.body


def popped(answer: RemotingCommand, topic: str, group: str, broker_name: str) -> list[Popped]:
    """The messages of an answer, with handles as the Java client makes them."""
    assert answer.code == 0, answer.remark
    fields = answer.ext_fields
    starts = {}
    for text in fields["startOffsetInfo"].split(";"):
        kind, queue_id, offset = text.split(" ")
        starts[kind, queue_id] = offset
    counts = {}
    for text in filter(None, fields["orderCountInfo"].split(";")):
        kind, place, count = text.split(" ")
        counts[place] = int(count)
    records = iter(decode_records(answer.body))
    found = []
    for text in fields["msgOffsetInfo"].split(";"):
        kind, queue_id, offsets = text.split(" ")
        for offset in offsets.split(","):
            record = next(records)
            handle = " ".join(
                (
                    starts[kind, queue_id],
                    fields["popTime"],
                    fields["invisibleTime"],
                    fields["reviveQid"],
                    *(kind, broker_name, queue_id, offset),
                )
            )
            if kind != "0":
                assert record.properties["POP_CK"] == handle
            real = PoppedFrom.parse(kind).topic(group, topic)
            count = counts.get(f"qo{queue_id}%{offset}", 0)
            found.append(Popped(record, real, int(queue_id), int(offset), handle, count))
    assert next(records, None) is None
    return found


class Member:
    """A member of one group."""

    def __init__(
        self, tool: Tool, topic: str = "T", group: str = "G", broker_name: str = "b"
    ) -> None:
        self.broker_name = broker_name
        self.tool = tool
        self.topic = topic
        self.group = group

    def fields(self, **changed: object) -> dict[str, str]:
        names = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
        }
        return {name: str(value) for name, value in (names | changed).items()}

    async def ask(self, **changed: object) -> RemotingCommand:
        return await self.tool.ask(POP, self.fields(**changed))

    async def pop(self, **changed: object) -> list[Popped]:
        """The messages of one pop; none if there are none."""
        answer = await self.ask(**changed)
        return (
            []
            if answer.code == NOTHING
            else popped(answer, self.topic, self.group, self.broker_name)
        )

    async def ack(self, message: Popped, **changed: str) -> int:
        """The code of the answer to an acknowledgement."""
        return (await self.tool.ask(ACK, self._named(message) | changed)).code

    async def change(self, message: Popped, invisible_ms: int) -> Popped | int:
        """The message with its new handle, or the code of a refusal."""
        fields = self._named(message) | {"invisibleTime": str(invisible_ms)}
        answer = await self.tool.ask(CHANGE, fields)
        if answer.code:
            return answer.code
        parts = message.handle.split(" ")
        names = ("popTime", "invisibleTime", "reviveQid")
        parts[1:4] = [answer.ext_fields[name] for name in names]
        return replace(message, handle=" ".join(parts))

    def _named(self, message: Popped) -> dict[str, str]:
        return {
            "consumerGroup": self.group,
            "topic": message.topic,
            "queueId": str(message.queue_id),
            "offset": str(message.offset),
            "extraInfo": message.handle,
        }

    async def pop_all(self, count: int, **changed: object) -> list[Popped]:
        """So many messages, by as many pops as it takes."""
        found: list[Popped] = []
        while len(found) < count:
            more = await self.pop(**changed)
            assert more, f"{len(found)} of {count} messages came"
            found += more
        return found

    async def batch_ack(self, first: Popped | None = None, offsets: Sequence[int] = ()) -> int:
        """The code of the answer to a batch of the pop of `first`, or to an empty one."""
        acks = []
        if first is not None:
            start, pop_ms, invisible_ms, revive, kind, *_ = first.handle.split(" ")
            bits = sum(1 << offset - int(start) for offset in offsets)
            ack = {"c": self.group, "t": self.topic, "r": kind, "so": int(start)}
            ack |= {"q": first.queue_id, "rq": int(revive), "pt": int(pop_ms)}
            ack |= {"it": int(invisible_ms), "b": base64.b64encode(bytes([bits])).decode()}
            acks = [ack]
        body = json.dumps({"brokerName": "b", "acks": acks}).encode()
        return (await self.tool.ask(BATCH_ACK, body=body)).code
