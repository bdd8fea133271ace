"""Requests with JSON bodies over HTTP/1.1, on asyncio streams."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from congreve.broker.election.coordinator import CoordinatorError, OutcomeUnknownError
from congreve.broker.errors import ConfigError

ANSWER_MAX = 1 << 20
"""Bytes of a line, header block or body that an answer may have."""
_PORTS = {"http": 80, "https": 443}
_ERRORS = 300
"""The first status of an answer that may be plain text."""
_TEXT_MAX = 300


class JsonAnswer(NamedTuple):
    """The status and the decoded body of an answer."""

    status: int
    body: dict[str, Any]


class JsonHttp:
    """A client of one HTTP server; each request has its own connection.

    `url` is `http://host:port` or `https://host:port`. Raises ConfigError for another one.
    `headers` returns further headers of each request, such as a token.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Callable[[], Mapping[str, str]] = dict,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
            raise ConfigError(f"{url!r} is not an address like http://127.0.0.1:2379")
        self.url = url
        self._host = parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._headers = headers

    async def request(self, method: str, path: str, body: object, timeout_s: float) -> JsonAnswer:
        """Send a request and read its answer.

        Raises CoordinatorError if the server did not get the request, and OutcomeUnknownError if it
        may have got it and its answer is missing.
        """
        sent = False
        try:
            async with asyncio.timeout(timeout_s), self._connected() as (reader, writer):
                sent = True
                self._write(writer, method, path, body)
                status, headers = await _read_head(reader)
                parts = [part async for part in _body_parts(reader, headers)]
                decode = _decode if status < _ERRORS else _decode_error
                return JsonAnswer(status, decode(b"".join(parts)))
        except (OSError, EOFError, TimeoutError, ValueError, msgspec.DecodeError) as error:
            kind = OutcomeUnknownError if sent else CoordinatorError
            raise kind(f"{method} {self.url}{path}: {_reason(error)}") from error

    async def stream(
        self, method: str, path: str, body: object, timeout_s: float
    ) -> AsyncIterator[dict[str, Any]]:
        """The JSON objects of a streamed answer, one on each line; it ends with the connection.

        `timeout_s` is for the beginning of the answer. Raises CoordinatorError.
        """
        try:
            async with self._connected(timeout_s) as (reader, writer):
                async with asyncio.timeout(timeout_s):
                    self._write(writer, method, path, body)
                    _, headers = await _read_head(reader)
                rest = b""
                async for part in _body_parts(reader, headers):
                    *lines, rest = (rest + part).split(b"\n")
                    if len(rest) > ANSWER_MAX:
                        raise ValueError(f"a line of more than {ANSWER_MAX} bytes")
                    for line in lines:
                        if line.strip():
                            yield _decode(line)
        except (OSError, EOFError, TimeoutError, ValueError, msgspec.DecodeError) as error:
            raise CoordinatorError(f"{method} {self.url}{path}: {_reason(error)}") from error

    @asynccontextmanager
    async def _connected(
        self, timeout_s: float | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=ANSWER_MAX
            )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def _write(self, writer: asyncio.StreamWriter, method: str, path: str, body: object) -> None:
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {
            "Host": f"{self._host}:{self._port}",
            "Connection": "close",
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **self._headers(),
        }
        lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {headers[key]}" for key in headers)]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise ValueError(f"headers of more than {ANSWER_MAX} bytes") from error
    first, *lines = head.rstrip("\r\n").split("\r\n")
    version, status, *_ = first.split(" ", 2)
    if not version.startswith("HTTP/1."):
        raise ValueError(f"not an HTTP/1 answer: {first[:80]!r}")
    headers = (line.partition(":") for line in lines)
    return int(status), {key.strip().lower(): value.strip() for key, _, value in headers}


async def _body_parts(
    reader: asyncio.StreamReader, headers: Mapping[str, str]
) -> AsyncIterator[bytes]:
    """The pieces of a body: chunks, a known length, or everything until the connection ends."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(_checked(size))
            await reader.readline()
    elif "content-length" in headers:
        yield await reader.readexactly(_checked(int(headers["content-length"])))
    else:
        while part := await reader.read(1 << 16):
            yield part


def _checked(size: int) -> int:
    if not 0 <= size <= ANSWER_MAX:
        raise ValueError(f"a body of {size} bytes, {ANSWER_MAX} are the most")
    return size


def _decode(text: bytes) -> dict[str, Any]:
    value = msgspec.json.decode(text) if text.strip() else {}
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {text[:80]!r}")
    return value


def _decode_error(text: bytes) -> dict[str, Any]:
    try:
        return _decode(text)
    except (ValueError, msgspec.DecodeError):
        return {"error": text[:_TEXT_MAX].decode("utf-8", "replace").strip()}


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
