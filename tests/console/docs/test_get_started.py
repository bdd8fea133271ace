"""The steps of docs/get-started.md and of README.md, as a new user types them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.commands import TIMEOUT_S
from tests.console.conftest import Daemon

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)
BIN = str(Path(sys.executable).parent)


def block(page: str, begins: str) -> str:
    """The one block of a page with a line that begins so."""
    texts = [text for _, text in BLOCK.findall((ROOT / page).read_text())]
    (found,) = [text for text in texts if re.search(rf"^{re.escape(begins)}", text, re.MULTILINE)]
    return found


def shell(text: str, folder: Path, namesrv: str = "") -> str:
    done = subprocess.run(
        ["sh", "-e", "-c", text],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NAMESRV_ADDR": namesrv},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("page", "begins"),
    [("docs/get-started.md", "congreve topic create orders"), ("README.md", "echo ")],
)
def test_a_message_is_sent_and_read_from_the_shell(
    tmp_path: Path, namesrv: str, data: Path, page: str, begins: str
) -> None:
    lines = block(page, begins).replace("data/store", str(data / "store")).splitlines()
    own = [line for line in lines if not line.startswith("congreve broker -c")]
    assert "hello" in shell("\n".join(own), tmp_path, namesrv)


@pytest.mark.parametrize("page", ["docs/get-started.md", "README.md"])
def test_a_message_is_sent_and_read_from_python(tmp_path: Path, namesrv: str, page: str) -> None:
    program = block(page, "from congreve.client import").replace("127.0.0.1:9876", namesrv)
    if page == "README.md":  # for python -m asyncio, in which `async with` needs no function
        program = (
            f"import ast, asyncio\nflag = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT\n"
            f"asyncio.run(eval(compile({program!r}, {page!r}, 'exec', flag)))"
        )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "b'hello'\n"
        running.send_signal(signal.SIGINT)


def test_name_server_and_broker_run_separately(tmp_path: Path) -> None:
    name_server, broker = (
        line.split()[1:] for line in block("docs/get-started.md", "congreve namesrv").splitlines()
    )
    servers = [Daemon(*_at_any_port(name_server, tmp_path))]
    address = servers[0].ready.rpartition(" ")[2].replace("0.0.0.0", "127.0.0.1")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"listenPort=0\nbrokerIP1=127.0.0.1\nstorePathRootDir={tmp_path}/store\n")
    try:
        given = [{"127.0.0.1:9876": address, "broker.conf": str(conf)}.get(w, w) for w in broker]
        servers.append(Daemon(*given))
        assert servers[1].ready.startswith("ready: broker")
    finally:
        assert [server.stop() for server in servers] == [0] * len(servers)


def _at_any_port(words: list[str], folder: Path) -> list[str]:
    return [
        {"9876": "0", "namesrv-data": str(folder / "namesrv")}.get(word, word) for word in words
    ]
