"""`pip install congreve`: the client and the commands that ask brokers, on every Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import congreve
from congreve.console.main import COMMANDS
from tests.packaging.conftest import PACKAGES, PORTABLE, ROOT, Python, newest_python
from tests.packaging.left_out import is_left_out

LIMIT = 25_000_000
"""Bytes of the packages that pip installs."""

MISSING = re.compile(
    r"congreve: (?:\w+ is not installed: pip install 'congreve\[\w+\]'"
    r"|congreve\.[\w.]+ is not in this installation, which has the client alone: servers and stores"
    r" need Linux)\n"
)

ROUND_TRIP = """
import asyncio, sys
from congreve.client import *

address, topic = sys.argv[1:]
with SyncProducer(address, group="p") as producer:
    sent = producer.send(Message(topic=topic, body=b"x" * 9000, tags="A"))
    producer.send_many(topic, [b"one", b"two"])
    producer.send_batch([Message(topic=topic, body=b"three")])
with SyncLitePullConsumer(address, group="g", topics={topic: "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
    got = []
    while len(got) < 4:
        got += consumer.poll()
assert sorted(message.body for message in got)[:3] == [b"one", b"three", b"two"]

async def ask():
    async with AdminClient(address) as admin:
        assert topic in await admin.topics()

asyncio.run(ask())
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with congreve.serve(tmp_path_factory.mktemp("node")) as node:
        # The first message of a topic makes files, which takes its time on a busy machine.
        with node.producer("first", send_timeout_s=60) as producer:
            producer.send(congreve.Message(topic="T", body=b"first"))
        yield node.address


@pytest.fixture(scope="module", params=["this", "newest"])
def client_only(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel, without extras."""
    folder = tmp_path_factory.mktemp("client")
    if request.param == "this":
        wheel: Path = request.getfixturevalue("repaired")
        return Python(sys.executable, folder).environment("venv", wheel)
    python = newest(folder)
    return python.environment("venv", python.client_wheel())


def newest(folder: Path) -> Python:
    found = newest_python()
    if found is None:
        pytest.skip("not installed: a Python that is newer than this one")
    return Python(found, folder)


def run(bin_folder: Path, *command: str, code: int = 0) -> str:
    done = subprocess.run(
        [str(bin_folder / command[0]), *command[1:]],
        cwd=bin_folder.parent,
        env={"PATH": str(bin_folder), "HOME": str(bin_folder.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_the_modules_of_servers_compile_for_the_newest_python(tmp_path: Path) -> None:
    """Without their machine code, which takes a minute and which no test would run."""
    sources = {path for folder in PACKAGES.values() for path in (ROOT / folder).rglob("*.pyx")}
    assert len(sources) > 80
    newest(tmp_path).check_generated(
        source
        for source in sources
        if not is_left_out(source)
        if not any(fnmatch(str(source.relative_to(ROOT)), pattern) for pattern in PORTABLE)
    )


def test_it_is_small(client_only: Path) -> None:
    (site,) = client_only.parent.glob("lib/python3.*/site-packages")
    files = [
        Path(folder) / name
        for folder, _, names in os.walk(site)
        if not Path(folder).relative_to(site).parts[:1]
        or not re.match(r"pip\b|setuptools", Path(folder).relative_to(site).parts[0])
        for name in names
    ]
    assert sum(path.stat().st_size for path in files) < LIMIT
    packages = {path.relative_to(site).parts[0] for path in files}
    assert not packages & {"numpy", "rich", "uvloop", "lark", "yaml"}


def test_it_sends_and_receives(client_only: Path, address: str) -> None:
    run(client_only, "python", "-c", ROUND_TRIP, address, client_only.parent.parent.name)


def test_the_commands_that_ask_brokers_work(client_only: Path, address: str) -> None:
    run(client_only, "congreve", "send", "-n", address, "-t", "T", "-m", "hello")
    read = ("congreve", "cat", "-n", address, "-t", "T", "-o", "beginning", "-e")
    assert "hello" in run(client_only, *read).splitlines()
    assert re.search(r"^T\b", run(client_only, "congreve", "topic", "list", "-n", address), re.M)
    run(client_only, "congreve", "group", "list", "-n", address)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_needs_more_names_the_extra(client_only: Path, name: str) -> None:
    done = subprocess.run(
        [str(client_only / "congreve"), name, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 2), done.stderr
    assert done.returncode == 0 or MISSING.fullmatch(done.stderr)


def test_a_server_does_not_start(client_only: Path) -> None:
    for command in (
        ("run", "--data", "d"),
        ("namesrv", "--port", "0"),
        ("store", "info", "d"),
        ("demo",),
        ("console",),
    ):
        said = run(client_only, "congreve", *command, code=2)
        assert MISSING.fullmatch(said), command
