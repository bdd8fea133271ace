"""A RocketMQ client in a hundred lines: blocking, one socket, written from the wire format.

It shares no code with the project, so that a mistake there cannot go unnoticed here.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass, field
from itertools import count
from typing import Any

SEND_MESSAGE_V2 = 310
HEART_BEAT = 34
END_TRANSACTION = 37
CHECK_TRANSACTION_STATE = 39
PULL_MESSAGE = 11
GET_MAX_OFFSET = 30
GET_BROKER_CLUSTER_INFO = 106
GET_ROUTEINFO_BY_TOPIC = 105
GET_CONSUMER_LIST_BY_GROUP = 38
VERSION_4_9_4 = 401


@dataclass
class Answer:
    """A decoded frame."""

    code: int
    opaque: int
    flag: int
    remark: str | None
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Wire:
    """One connection; JSON headers."""

    def __init__(self, address: str, timeout_s: float = 60.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opaque = count(1)
        self._pending = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    @property
    def local(self) -> tuple[str, int]:
        """The address of this end."""
        name: tuple[str, int] = self._socket.getsockname()[:2]
        return name

    def set_timeout(self, seconds: float) -> None:
        """Wait that long for a frame from now on, then raise TimeoutError."""
        self._socket.settimeout(seconds)

    def fileno(self) -> int:
        """For select(), to wait for several connections."""
        return self._socket.fileno()

    def send(
        self, code: int, fields: dict[str, str], body: bytes = b"", *, oneway: bool = False
    ) -> int:
        """Write one request; returns its opaque."""
        opaque = next(self._opaque)
        header = json.dumps(
            {
                "code": code,
                "language": "PYTHON",
                "version": VERSION_4_9_4,
                "opaque": opaque,
                "flag": 2 if oneway else 0,
                "extFields": fields,
                "serializeTypeCurrentRPC": "JSON",
            }
        ).encode()
        size = struct.pack(">II", 4 + len(header) + len(body), len(header))
        self._socket.sendall(size + header + body)
        return opaque

    def reply(self, request: Answer) -> None:
        """Answer a request of the broker with success."""
        header = json.dumps({"code": 0, "language": "PYTHON", "opaque": request.opaque, "flag": 1})
        frame = header.encode()
        self._socket.sendall(struct.pack(">II", 4 + len(frame), len(frame)) + frame)

    def receive(self) -> Answer:
        """The next frame. Raises ConnectionError when the peer has closed the connection."""
        (total,) = struct.unpack(">I", self._read(4))
        frame = self._read(total)
        header_size = struct.unpack(">I", frame[:4])[0] & 0xFFFFFF
        header = json.loads(frame[4 : 4 + header_size])
        return Answer(
            header["code"],
            header["opaque"],
            header["flag"],
            header.get("remark"),
            header.get("extFields") or {},
            frame[4 + header_size :],
        )

    def call(self, code: int, fields: dict[str, str], body: bytes = b"") -> Answer:
        """Send one request and return its answer; other frames are skipped."""
        opaque = self.send(code, fields, body)
        while True:
            answer = self.receive()
            if answer.opaque == opaque and answer.flag & 1:
                return answer

    def answer(self, request: Answer) -> None:
        """Answer a request of the peer with success."""
        header = json.dumps(
            {"code": 0, "language": "PYTHON", "opaque": request.opaque, "flag": 1}
        ).encode()
        self._socket.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)

    def _read(self, size: int) -> bytes:
        while len(self._pending) < size:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the peer closed the connection")
            self._pending += chunk
        data, self._pending = self._pending[:size], self._pending[size:]
        return data


def send_fields(topic: str, queue_id: int, properties: dict[str, str]) -> dict[str, str]:
    """The header of SEND_MESSAGE_V2 (RocketMQ: SendMessageRequestHeaderV2)."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return {
        "a": "interop",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": text,
        "j": "0",
        "k": "false",
        "m": "false",
    }


def pull_fields(topic: str, queue_id: int, offset: int, max_count: int) -> dict[str, str]:
    """The header of a PULL_MESSAGE that does not wait (RocketMQ: PullMessageRequestHeader)."""
    return {
        "consumerGroup": "interop-wire",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(max_count),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }


def record_bodies(body: bytes) -> list[tuple[int, bytes]]:
    """(queue offset, message body) of each record in the body of a pull's answer."""
    found, at = [], 0
    while at < len(body):
        size = struct.unpack_from(">I", body, at)[0]
        queue_offset = struct.unpack_from(">Q", body, at + 20)[0]
        sys_flag = struct.unpack_from(">I", body, at + 36)[0]
        body_at = at + 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
        length = struct.unpack_from(">I", body, body_at)[0]
        found.append((queue_offset, body[body_at + 4 : body_at + 4 + length]))
        at += size
    return found


def record_fields(body: bytes) -> list[dict[str, Any]]:
    """All fields of each record in the body of a pull's answer; properties as a dict."""
    found, at = [], 0
    while at < len(body):
        size, _, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = (
            struct.unpack_from(">IIIIiQQiQ", body, at)
        )
        born_size, store_size = (16 if sys_flag & bit else 4 for bit in (0x10, 0x20))
        here = at + 48
        born_host = body[here : here + born_size + 4]
        here += born_size + 4
        (stored,) = struct.unpack_from(">Q", body, here)
        store_host = body[here + 8 : here + 12 + store_size]
        here += 12 + store_size
        reconsume_times, prepared_offset, length = struct.unpack_from(">iQI", body, here)
        here += 16
        content, here = body[here : here + length], here + length
        topic, here = body[here + 1 : here + 1 + body[here]], here + 1 + body[here]
        text = body[here + 2 : at + size].decode()
        found.append(
            {
                "size": size,
                "bodyCrc": crc,
                "queueId": queue_id,
                "flag": flag,
                "queueOffset": queue_offset,
                "physicalOffset": physical_offset,
                "sysFlag": sys_flag,
                "bornTimestamp": born,
                "bornHost": born_host,
                "storeTimestamp": stored,
                "storeHost": store_host,
                "reconsumeTimes": reconsume_times,
                "preparedOffset": prepared_offset,
                "body": content,
                "topic": topic.decode(),
                "properties": dict(pair.split("\x01") for pair in text.split("\x02") if pair),
            }
        )
        at += size
    return found


def heartbeat(topic: str, *groups: str, **changed: object) -> bytes:
    """The body of a HEART_BEAT of one client in several groups; `changed` applies to each group."""
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    members = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
            "unitMode": False,
            **changed,
        }
        for group in groups
    ]
    client = {"clientID": groups[0], "consumerDataSet": members, "producerDataSet": []}
    return json.dumps(client).encode()
