"""Every example of the guide runs."""

import ast
import asyncio
import inspect
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import fakeredis
import pytest
import redis

import congreve
import congreve.client
from congreve.remoting.loop.loop_thread import LoopThread

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"
PROGRAMS = GUIDE.parents[1] / "examples"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
SECONDS = 60
SETTINGS = {
    "enablePropertyFilter": True,
    "transactionTimeOut": 300,
    "transactionCheckInterval": 300,
}
STRATEGIES = (
    *("averagely", "by_circle", "by_config", "by_machine_room", "consistent_hash"),
    "machine_room_nearby",
)
HELPERS = (
    *("TraceHook", "ConsumeTraceHook", "PrometheusHook", "PrometheusConsumerMetrics"),
    *("OpenTelemetryHook", "OpenTelemetryConsumeHook", "Idempotence", "SqliteClaims"),
    *("SendSpans", "ConsumeSpans"),
    *("RedisClaims", "arrow_batches", "send_many", "send_soon", "send_oneway", "send_batch"),
    *("assign", "seek", "seek_to_begin", "pause", "commit_polled", "ZLIB", "LZ4", "ZSTD"),
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server's key.pem and its certificate, which is its own authority.pem."""
    if shutil.which("openssl") is None:
        pytest.skip("not installed: openssl")
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=guide", "-addext", "subjectAltName=IP:127.0.0.1,IP:127.0.0.2"]
    command += ["-keyout", "key.pem", "-out", "authority.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


class Encrypted:
    """Accepts TLS connections and forwards their bytes to a server without TLS."""

    def __init__(self, certificate: Path, port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate / "authority.pem", certificate / "key.pem")
        self._behind = port

    async def start(self, host: str, port: int = 0) -> asyncio.Server:
        return await asyncio.start_server(self._serve, host, port, ssl=self._context)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        await asyncio.gather(
            self._pass_on(reader, inner_writer), self._pass_on(inner_reader, writer)
        )

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()


class Servers:
    """A name server and a broker on a thread of their own: an example may block.

    With a certificate they accept only TLS; the broker then registers another address.
    """

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        self._folder = folder
        self._certificate = certificate
        self._thread = LoopThread("guide")
        self._thread.start()
        self._servers = AsyncExitStack()
        self.address: str = self._thread.run(self._start())

    async def _start(self) -> str:
        address = {} if self._certificate is None else {"brokerIP1": "127.0.0.2"}
        node = await self._servers.enter_async_context(
            congreve.serve(self._folder, flushDiskType="ASYNC_FLUSH", **SETTINGS, **address)
        )
        if self._certificate is None:
            return node.address
        await Encrypted(self._certificate, node.broker.port).start("127.0.0.2", node.broker.port)
        inside = Encrypted(self._certificate, node.name_server.port)
        outside = await inside.start("127.0.0.2")
        return f"127.0.0.2:{outside.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._thread.run(self._servers.aclose())
        self._thread.stop()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = Servers(tmp_path_factory.mktemp("guide"))
    yield servers.address
    servers.stop()


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[str]:
    servers = Servers(tmp_path_factory.mktemp("guide-tls"), certificate)
    yield servers.address
    servers.stop()


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_guide_runs(
    number: int,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = EXAMPLES[number]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(redis, "Redis", fakeredis.FakeRedis)
    namesrv = request.getfixturevalue("encrypted" if "import ssl" in example else "plain")
    if "import ssl" in example:
        shutil.copy(request.getfixturevalue("certificate") / "authority.pem", tmp_path)
    code = compile(
        example, f"{GUIDE.name}, example {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    names = {"namesrv": namesrv, "__name__": "example"}
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return

    async def run() -> None:
        async with asyncio.timeout(SECONDS):
            await eval(code, names)

    asyncio.run(run())


@pytest.mark.parametrize("name", [*congreve.client.__all__, *STRATEGIES, *HELPERS])
def test_each_name_is_shown(name: str) -> None:
    """By the guide or by examples/; the name of a class without an event loop is the other's."""
    programs = [path.read_text() for path in PROGRAMS.glob("*.py")]
    shown = re.compile(rf"\b{name.removeprefix('Sync')}\b")
    assert any(shown.search(text) for text in [GUIDE.read_text(), *programs])
