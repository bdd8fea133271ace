"""Every example of the guide runs."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.console.serve import local_config
from congreve.namesrv.server import NameServer
from congreve.remoting.loopthread import LoopThread

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
SECONDS = 60


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server and a broker on a thread of their own: an example may block."""
    thread = LoopThread("guide")
    servers = AsyncExitStack()

    async def start() -> str:
        namesrv = await servers.enter_async_context(NameServer(host="127.0.0.1", port=0))
        folder = tmp_path_factory.mktemp("guide")
        config = local_config(folder, "127.0.0.1", 0, namesrv.address, "async")
        config.apply({"enablePropertyFilter": "true"})
        await servers.enter_async_context(Broker(config))
        return namesrv.address

    yield thread.run(start())
    thread.run(servers.aclose())
    thread.stop()


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(
    number: int, namesrv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    code = compile(
        EXAMPLES[number], f"{GUIDE.name}, example {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    names = {"namesrv": namesrv, "__name__": "example"}
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return

    async def run() -> None:
        async with asyncio.timeout(SECONDS):
            await eval(code, names)

    asyncio.run(run())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 10
