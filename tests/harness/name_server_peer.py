"""Requests as another implementation would write them, without the project's code."""

import asyncio
import json
import struct
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class Answer:
    """A decoded answer."""

    code: int
    remark: str | None
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Peer:
    """A connection that sends JSON headers."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._opaque = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def call(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", version: int = 401
    ) -> Answer:
        """Send a request and return its answer."""
        self._opaque += 1
        header = json.dumps(
            {
                "code": code,
                "language": "JAVA",
                "version": version,
                "opaque": self._opaque,
                "flag": 0,
                "extFields": {key: str(value) for key, value in (fields or {}).items()},
            }
        ).encode()
        self._writer.write(struct.pack(">II", 4 + len(header) + len(body), len(header)))
        self._writer.write(header + body)
        (total,) = struct.unpack(">I", await self._reader.readexactly(4))
        frame = await self._reader.readexactly(total)
        size = struct.unpack_from(">I", frame)[0] & 0xFFFFFF
        answer = json.loads(frame[4 : 4 + size])
        assert answer["opaque"] == self._opaque
        return Answer(
            answer["code"],
            answer.get("remark"),
            answer.get("extFields") or {},
            frame[4 + size :],
        )
