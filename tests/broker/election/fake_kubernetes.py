"""A stand-in for the Kubernetes API of Lease objects."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

FOLDER = "/apis/coordination.k8s.io/v1/namespaces/test/leases"


class FakeKubernetes:
    """Serves GET, POST and PUT of Leases, with resource versions and their conflicts."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.token: str | None = None
        """The only one that it takes; None: it takes requests without one."""
        self._tls = tls
        self.leases: dict[str, dict[str, Any]] = {}
        self.lose_answers = False
        self._version = 0
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{'http' if self._tls is None else 'https'}://{host}:{port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        lines = (line.partition(": ") for line in head.splitlines())
        length = next(int(value) for key, _, value in lines if key == "Content-Length")
        text = await reader.readexactly(length)
        if self.token is not None and f"Authorization: Bearer {self.token}\r\n" not in head:
            status, answer = 401, {"message": "Unauthorized"}
        else:
            status, answer = self._answer(method, path, json.loads(text or b"{}"))
        if method == "GET" or not self.lose_answers:
            body = json.dumps(answer).encode()
            writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            writer.write(body)
        writer.close()

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert path.startswith(FOLDER), path
        name = path.removeprefix(FOLDER).strip("/") or body["metadata"]["name"]
        known = self.leases.get(name)
        if method == "GET":
            return (404, {"message": "not found"}) if known is None else (200, known)
        if method == "POST" and known is not None:
            return 409, {"message": "it exists"}
        version = body["metadata"].get("resourceVersion")
        if method == "PUT" and (known is None or known["metadata"]["resourceVersion"] != version):
            return 409, {"message": "the object has been modified"}
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.leases[name] = body
        return 200, body
