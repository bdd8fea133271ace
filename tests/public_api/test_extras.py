"""What the client needs: few packages, few compiled modules, nothing of Linux's own."""

import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import congreve
from congreve.base.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMPORTED_AS = {"pyyaml": "yaml"}
MISSING = f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRAS['broker'])}))\n"

ELSEWHERE = """
import os, select, signal, socket, sys

class Foreign:
    "Refuses compiled modules that are not built on other systems, and modules of Linux's own."

    def find_spec(self, name, path=None, target=None):
        if name in REFUSED or name.startswith(("congreve.engine", "congreve.broker",
                "congreve.io_backends", "congreve.lake", "congreve.namesrv")):
            raise ModuleNotFoundError(f"{name} is not on this system", name=name)

sys.meta_path.insert(0, Foreign())
sys.platform = "darwin"
for module, names in LINUX.items():
    for name in names:
        delattr(sys.modules[module], name)
"""

LINUX = {
    "os": ["eventfd", "memfd_create", "splice", "sched_setaffinity"],
    "select": ["epoll"],
    "socket": ["SO_BINDTODEVICE", "TCP_QUICKACK", "TCP_USER_TIMEOUT", "AF_NETLINK"],
}

ROUND_TRIP = """
import asyncio
from congreve.client import *

address = sys.argv[1]
with SyncProducer(address, group="p") as producer:
    producer.send(Message(topic="orders", body=b"x" * 9000, tags="A"))
    producer.send_many("orders", [b"one", b"two"])
    producer.send_soon(Message(topic="orders", body=b"three")).result(60)

async def listen():
    got = asyncio.Queue()
    async with PushConsumer(address, group="g", topics={"orders": "*"}, listener=got.put,
            consume_from=ConsumeFrom.FIRST_OFFSET):
        bodies = sorted([(await got.get()).body for _ in range(4)])
    assert bodies == [b"one", b"three", b"two", b"x" * 9000]
    async with AdminClient(address) as admin:
        assert "orders" in await admin.topics()

asyncio.run(listen())
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_names_of_an_extra_are_those_of_its_packages(extra: str) -> None:
    wanted = PYPROJECT["project"]["optional-dependencies"][extra]
    names = {re.match(r"[\w-]+", each)[0] for each in wanted}  # type: ignore[index]
    elsewhere = {name for other, has in EXTRAS.items() if other != extra for name in has}
    mine = {IMPORTED_AS.get(name, name) for name in names} - elsewhere - {"congreve"}
    assert mine == set(EXTRAS[extra])


@pytest.mark.parametrize("command", [["run"], ["store", "info", "x"], ["demo"]])
def test_a_command_without_its_packages_names_the_extra(command: list[str]) -> None:
    done = python(
        f"{MISSING}sys.argv = ['congreve', *{command}]\n"
        "from congreve.console.main import main; main()"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"congreve: \w+ is not installed: pip install 'congreve\[broker\]'\n", done.stderr
    )


def test_a_node_without_its_packages_names_the_extra() -> None:
    done = python(
        f"{MISSING}import congreve\n"
        "try: congreve.serve\n"
        "except ImportError as error: assert \"'congreve[broker]'\" in str(error), error\n"
        "else: assert False"
    )
    assert done.returncode == 0, done.stderr


def test_the_client_works_where_nothing_of_linux_s_own_is(tmp_path: Path) -> None:
    """As on macOS, which no test here has: without the modules that are compiled on Linux only."""
    portable = PYPROJECT["tool"]["congreve"]["portable"]
    folders = PYPROJECT["tool"]["setuptools"]["package-dir"]
    refused = [
        ".".join([package, *source.relative_to(ROOT / folder).with_suffix("").parts])
        for package, folder in folders.items()
        for source in (ROOT / folder).rglob("*.pyx")
        if not any(fnmatch(str(source.relative_to(ROOT)), pattern) for pattern in portable)
    ]
    names = f"REFUSED, LINUX = {[*refused, 'resource', 'uvloop', 'numpy']}, {LINUX}\n"
    with congreve.serve(tmp_path / "data") as node:
        done = python(f"{names}{ELSEWHERE}{ROUND_TRIP}", node.address)
    assert done.returncode == 0, done.stderr
