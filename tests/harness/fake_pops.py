"""A fake broker that hands out messages one by one."""

import asyncio
import time
from typing import Any

from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.pop_bodies import BatchAckMessageRequestBody
from harness.fake_cluster import FakeBroker, record

POP, ACK, CHANGE, NOTIFY, BATCH_ACK, ASSIGN = 200050, 200051, 200053, 200054, 200151, 400


class Pops(FakeBroker):
    """Hands out each record of queue 0 once; notes what is acknowledged, and with which handle."""

    def __init__(self, name: str = "a") -> None:
        super().__init__(name)
        self.records: list[bytes] = []
        self.next = 0
        self.acked: list[int] = []
        self.handles: list[str] = []
        self.changed: list[tuple[int, int]] = []
        self.pop_ms = int(time.time() * 1000)
        self.handlers[POP] = lambda request, _: self._pop(request)
        self.answers |= {
            ACK: self._ack,
            BATCH_ACK: self._batch_ack,
            CHANGE: self._change,
            NOTIFY: self._notify,
            ASSIGN: lambda request: request.reply(0, body=b"{}"),
        }

    def fill(self, count: int, **fields: Any) -> None:
        """Make so many more messages."""
        first = len(self.records)
        self.records += [record(i, b"%d" % i, **fields) for i in range(first, first + count)]

    async def _pop(self, request: RemotingCommand) -> RemotingCommand:
        most = int(request.ext_fields["maxMsgNums"])
        end = time.monotonic() + int(request.ext_fields["pollTime"]) / 1000
        while self.next == len(self.records):
            if time.monotonic() >= end:
                return request.reply(210)
            await asyncio.sleep(0.005)
        begin, found = self.next, self.records[self.next : self.next + most]
        self.next += len(found)
        self.pop_ms += 1
        fields = {
            "popTime": str(self.pop_ms),
            "invisibleTime": request.ext_fields["invisibleTime"],
            "reviveQid": "3",
            "restNum": "0",
            "startOffsetInfo": f"0 0 {begin}",
            "msgOffsetInfo": f"0 0 {','.join(map(str, range(begin, self.next)))}",
        }
        return request.reply(0, ext_fields=fields, body=b"".join(found))

    def _ack(self, request: RemotingCommand) -> RemotingCommand:
        self.acked.append(int(request.ext_fields["offset"]))
        self.handles.append(request.ext_fields["extraInfo"])
        return request.reply(0)

    def _batch_ack(self, request: RemotingCommand) -> RemotingCommand:
        for ack in BatchAckMessageRequestBody.decode(request.body).acks:
            self.acked += ack.offsets(0, len(self.records))
        return request.reply(0)

    def _change(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        self.changed.append((int(fields["offset"]), int(fields["invisibleTime"])))
        self.pop_ms += 1
        answer = {"popTime": str(self.pop_ms), "reviveQid": "4"}
        return request.reply(0, ext_fields=answer | {"invisibleTime": fields["invisibleTime"]})

    def _notify(self, request: RemotingCommand) -> RemotingCommand | None:
        if self.next == len(self.records):
            return None
        return request.reply(0, ext_fields={"hasMsg": "true"})
