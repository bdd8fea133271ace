"""Members of a group that pop and acknowledge, as cheap for this process as they can be."""

from __future__ import annotations

import json
import random
import selectors
import socket
import struct
import time
from collections.abc import Callable

from harness import servers

BROKER = "broker-a"
POP, ACK = 200_050, 200_051
MOST = 32
"""Messages of a pop."""
NOTHING_CODES = (209, 210)
STALLED_S = 30.0
_LENGTHS = struct.Struct(">iI")
_HEADER_SIZE = 0xFFFFFF
_SUCCESS = b'"code":0'
_SETTLED: dict[str, object] = {"code": 0}


class FailedError(Exception):
    """A broker has refused a request, or answers no more."""


def frame(code: int, fields: dict[str, str]) -> bytes:
    """A request as the Java client sends it, as JSON."""
    header = {"code": code, "language": "JAVA", "version": 477, "opaque": 1, "flag": 0}
    header |= {"serializeTypeCurrentRPC": "JSON", "extFields": fields}
    text = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTHS.pack(4 + len(text), len(text)) + text


class Member:
    """One connection, whose messages are acknowledged one by one."""

    def __init__(self, port: int, topic: str, group: str, invisible_ms: int) -> None:
        self.socket = socket.create_connection((servers.HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.acks_left = 0
        self._buffer = bytearray()
        self._pop = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": "-1",
            "maxMsgNums": str(MOST),
            "invisibleTime": str(invisible_ms),
            "pollTime": "1000",
            "bornTime": "0",
            "initMode": "0",
            "order": "false",
        }
        names = ("consumerGroup", "topic", "queueId", "offset", "extraInfo")
        self._ack = frame(ACK, dict.fromkeys(names, "?")).replace(b"%", b"%%")[8:]
        self._ack = self._ack.replace(b'"?"', b'"%s"')
        self._topics = (topic, f"%RETRY%{group}_{topic}")
        self._group = group

    def pop(self) -> None:
        """Ask for messages."""
        self._pop["bornTime"] = str(int(time.time() * 1000))
        self.socket.sendall(frame(POP, self._pop))

    def answers(self) -> list[dict[str, object]]:
        """The headers of the answers that are there, with the size of their body as "size"."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise FailedError("the broker has closed the connection")
        self._buffer += data
        found, at = [], 0
        while len(self._buffer) - at >= _LENGTHS.size:
            length, size = _LENGTHS.unpack_from(self._buffer, at)
            if len(self._buffer) - at < 4 + length:
                break
            begin, end = at + 8, at + 8 + (size & _HEADER_SIZE)
            header = self._buffer[begin:end]
            is_settled = self.acks_left > len(found) and _SUCCESS in header
            found.append(_SETTLED if is_settled else json.loads(header))
            at += 4 + length
        del self._buffer[:at]
        return found

    def acks_of(self, answer: dict[str, object]) -> list[bytes]:
        """The acknowledgements of what a pop got."""
        if answer["code"] in NOTHING_CODES:
            return []
        if answer["code"]:
            raise FailedError(f"pop: {answer['code']} {answer.get('remark')}")
        fields: dict[str, str] = answer["extFields"]  # type: ignore[assignment]
        starts = dict(text.rsplit(" ", 1) for text in fields["startOffsetInfo"].split(";"))
        found = []
        for text in fields["msgOffsetInfo"].split(";"):
            place, offsets = text.rsplit(" ", 1)
            kind, queue = place.split(" ")
            name = self._topics[kind != "0"]
            head = f"{starts[place]} {fields['popTime']} {fields['invisibleTime']}"
            head += f" {fields['reviveQid']} {kind} {BROKER} {queue} "
            for offset in offsets.split(","):
                values = (self._group, name, queue, offset, head + offset)
                found.append(self._frame(*values))
        return found

    def _frame(self, *values: str) -> bytes:
        text = self._ack % tuple(value.encode() for value in values)
        return _LENGTHS.pack(4 + len(text), len(text)) + text

    def send(self, acks: list[bytes]) -> None:
        """Acknowledge; as many answers come."""
        self.socket.sendall(b"".join(acks))
        self.acks_left += len(acks)


class Group:
    """Members that are served together, by one thread."""

    def __init__(self, port: int, topic: str, group: str, count: int, invisible_ms: int) -> None:
        self.members = [Member(port, topic, group, invisible_ms) for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.socket, selectors.EVENT_READ, member)

    def close(self) -> None:
        """Close the connections."""
        self._selector.close()
        for member in self.members:
            member.socket.close()

    def _until(self, ended: Callable[[], bool], take: Callable[[Member, dict], None]) -> None:
        until = time.monotonic() + STALLED_S
        while not ended():
            ready = self._selector.select(1.0)
            if not ready and time.monotonic() > until:
                raise FailedError(f"no answer for {STALLED_S:g} s")
            for key, _ in ready:
                until = time.monotonic() + STALLED_S
                for answer in key.data.answers():
                    take(key.data, answer)

    def consume(
        self, warm_up: int, count: int, seconds: float, begins: Callable[[], None]
    ) -> tuple[int, float]:
        """Pop and acknowledge; returns how many messages in how many seconds.

        Both count after `warm_up` messages, when `begins` is called.
        """
        began, done = 0.0, -warm_up

        def take(member: Member, answer: dict) -> None:
            nonlocal began, done
            if member.acks_left:
                if answer["code"]:
                    raise FailedError(f"acknowledgement: {answer['code']} {answer.get('remark')}")
                member.acks_left -= 1
                done += 1
                if not done:
                    began = time.monotonic()
                    begins()
            elif acks := member.acks_of(answer):
                member.send(acks)
            if not member.acks_left:
                member.pop()

        for member in self.members:
            member.pop()
        self._until(
            lambda: done >= count or (done > 0 and time.monotonic() - began > seconds), take
        )
        return done, time.monotonic() - began

    def take(self, count: int) -> list[bytes]:
        """Pop so many messages, and return their acknowledgements in order."""
        found: list[bytes] = []
        asking = len(self.members)

        def take(member: Member, answer: dict) -> None:
            nonlocal asking
            found.extend(member.acks_of(answer))
            if len(found) < count:
                member.pop()
            else:
                asking -= 1

        for member in self.members:
            member.pop()
        self._until(lambda: not asking, take)
        return found

    def settle(self, acks: list[bytes]) -> None:
        """Acknowledge, some at once on each connection."""
        waiting = [acks[at : at + MOST] for at in range(0, len(acks), MOST)][::-1]
        left = len(acks)

        def take(member: Member, answer: dict) -> None:
            nonlocal left
            if answer["code"]:
                raise FailedError(f"acknowledgement: {answer['code']} {answer.get('remark')}")
            left -= 1
            member.acks_left -= 1
            if not member.acks_left and waiting:
                member.send(waiting.pop())

        for member in self.members:
            if waiting:
                member.send(waiting.pop())
        self._until(lambda: not left, take)

    def lateness(self, count: int, invisible_ms: int) -> list[int]:
        """How many ms after its time each of so many messages comes again that are not settled.

        The members pop all of them first, by pops of `invisible_ms`.
        """
        due: list[int] = []
        late: list[int] = []
        first = 0

        def take(member: Member, answer: dict) -> None:
            nonlocal first
            number = len(member.acks_of(answer))
            if number:
                fields: dict[str, str] = answer["extFields"]
                again = not fields["startOffsetInfo"].startswith("0 ")
                if again:
                    now = int(time.time() * 1000)
                    late.extend(
                        now - due[min(len(late) + at, len(due) - 1)] for at in range(number)
                    )
                elif first < count:
                    first += number
                    due.extend([int(fields["popTime"]) + invisible_ms] * number)
            member.pop()

        for member in self.members:
            member.pop()
        self._until(lambda: first >= count and len(late) >= count * 0.99, take)
        return sorted(late)


def shuffled(acks: list[bytes]) -> list[bytes]:
    """The same in random order."""
    return random.Random(1).sample(acks, len(acks))
