"""The blocks of shell in README.md, docs/ and deploy/, run as written beside one broker.

Only addresses, folders and what stands for a value of the reader's own are replaced. A block is
run here, by another test that is named, or is left out with the reason.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import congreve
from congreve.client import (
    ConsumeFrom,
    ConsumeResult,
    ConsumerSettings,
    Message,
    ReceivedMessage,
)
from tests.console.commands import TIMEOUT_S
from tests.console.conftest import Daemon
from tests.console.docs.test_blocks import blocks, commands

BIN = Path(sys.executable).parent
FIRST = ConsumeFrom.FIRST_OFFSET
SECRET = "CONGREVE_SECRET_KEY=..."

#: The blocks that run here, by page: how each begins, and what its output has.
RUN: dict[str, dict[str, str]] = {
    "docs/accounts.md": {
        "congreve user add": r"^administrator .*\n(.*\n)*orders-service ",
        SECRET: r"^billing\b",
    },
    "docs/commands.md": {
        "congreve context add": r"^orders\b",
        "congreve group list": r"^$",
        "congreve send": r"/\d+ order-7 \{",
    },
    "docs/lake.md": {
        "pip install": r"\d",
        "congreve lake follow --store data/store --topic orders --topic bills": r"^\d+ messages",
        "congreve lake upkeep": r"\d",
        "congreve lake restore": r"\d",
    },
    "docs/operations.md": {
        "congreve store backup": r"restored",
        "congreve group list": r"(?s)^billing\b.*TOO_MANY|dead",
        "congreve bundle": r"report\.tar\.gz",
    },
    "docs/quotas.md": {"congreve quota set": r"sendMessages"},
}

#: The blocks that another test runs, with its module.
ELSEWHERE: dict[str, dict[str, str]] = {
    "README.md": {
        "make wheel": "tests/packaging/test_installed.py",
        "congreve broker -c": "tests/console/docs/test_get_started.py",
    },
    "docs/clusters.md": {"congreve cluster status": "tests/console/cluster/test_cluster_verbs.py"},
    "docs/console.md": {"congreve console": "tests/console/web"},
    "docs/consuming.md": {"mqadmin consumerProgress": "tests/interop/tools"},
    "docs/election.md": {"congreve election status": "tests/broker/election"},
    "docs/get-started.md": {
        "make wheel": "tests/packaging/test_installed.py",
        "congreve run": "tests/console/docs/test_get_started.py",
        "congreve topic create": "tests/console/docs/test_get_started.py",
        "congreve namesrv": "tests/console/docs/test_get_started.py",
    },
    "docs/lake.md": {
        "congreve lake follow --store data/store --topic orders --warehouse /srv/lake --body": (
            "tests/lake/test_page.py"
        ),
    },
    "docs/replication.md": {"congreve run": "tests/broker/replication"},
    "docs/tls.md": {"congreve namesrv": "tests/broker/tls"},
    "docs/spark.md": {
        "make build": "tests/spark/test_docs.py",
        "pip wheel": "tests/spark/test_standalone.py",
    },
    "docs/tuning.md": {"congreve bench": "tests/bench"},
    "deploy/README.md": {
        "python3 -m venv": "tests/packaging/test_installed.py",
        "make wheel": "tests/packaging/test_installed.py",
        "podman run": "tests/packaging/test_installed.py",
    },
}

#: The blocks that no test runs as they are, with the reason.
LEFT_OUT: dict[str, dict[str, str]] = {
    "README.md": {"make run": "they build everything, and run the tests"},
    "docs/election.md": {"etcdctl role add": "etcdctl asks for a password at a terminal"},
    "docs/operations.md": {"btrfs subvolume": "it needs a btrfs"},
    "docs/lake.md": {
        "congreve lake follow --store data/store --topic orders --warehouse s3": "it needs S3",
    },
    "docs/tuning.md": {"congreve tune": "three measurements of half a minute"},
    "deploy/README.md": {"buildah": "it builds an image, with packages from the network"},
}

#: Blocks of servers, which run until they are stopped: what the last one prints.
SERVERS: dict[str, dict[str, str]] = {
    "docs/console.md": {"pip install 'congreve[console]'": r"http://127\.0\.0\.1:\d+"},
    "docs/operations.md": {
        "congreve namesrv --port": "^ready: broker",
        "congreve namesrv --listener": "^ready: name server",
        "congreve run": "^ready: broker",
    },
}

FOLLOWED = r"""\g<0> &
until find /srv/lake | grep -q 'bills.*parquet'; do sleep 0.2; done
kill $! && wait $!
"""
"""A follower, until the table of its second topic has its first file."""

TABLES = (RUN, ELSEWHERE, LEFT_OUT, SERVERS)


def shell_blocks() -> Iterator[tuple[str, str, str]]:
    """The page, the place and the text of each block of shell."""
    for place, text in blocks("sh", "bash", "console"):
        yield place.partition(":")[0], place, text


def begins(table: dict[str, dict[str, str]], page: str, text: str) -> list[str]:
    """The entries of a table that a block is."""
    return [start for start in table.get(page, {}) if text.startswith(start)]


def found(table: dict[str, dict[str, str]]) -> list[tuple[str, str, str]]:
    """The blocks of a table: page, text, and what the table says of it."""
    return [
        (page, text, table[page][start])
        for page, _, text in shell_blocks()
        for start in begins(table, page, text)
    ]


def test_each_block_is_in_one_table() -> None:
    wrong = [
        place
        for page, place, text in shell_blocks()
        if len([start for table in TABLES for start in begins(table, page, text)]) != 1
    ]
    assert not wrong, "say in one of the tables above how these blocks are tested"
    named = [(page, start) for table in TABLES for page in table for start in table[page]]
    shown = [(page, text) for page, _, text in shell_blocks()]
    gone = [
        (page, start)
        for page, start in named
        if not any(page == at and text.startswith(start) for at, text in shown)
    ]
    assert not gone, "no block begins so any more"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a reader types: a broker.conf, a log, and the folders of the examples."""
    home = tmp_path_factory.mktemp("home")
    for name in ("conf", "lake", "backup"):
        (home / name).mkdir()
    (home / "lines.txt").write_text("tea\ncoffee\n")
    (home / "broker.log").write_text("a line\n")
    (home / "tls.properties").write_text("tls.client.trustServer=true\n")
    (home / "broker.conf").write_text(
        "listenPort=0\nbrokerIP1=127.0.0.1\nstorePathRootDir=data/store\n"
    )
    return home


@pytest.fixture(scope="module")
def node(home: Path) -> Iterator[congreve.Node]:
    """A broker with the topics and the groups of the pages; billing has dead letters of orders."""

    def refuse(_: ReceivedMessage) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER

    with congreve.serve(
        home / "data", brokerName="broker-a", flushConsumeQueueThoroughInterval=500
    ) as node:
        with node.producer("shop") as producer:
            for topic in ("orders", "bills"):
                producer.send(Message(topic=topic, body=b"hello", tags="new", keys="order-7"))
        once = ConsumerSettings(max_reconsume_times=0)
        with (
            node.push_consumer(
                "billing", {"orders": "*"}, refuse, settings=once, consume_from=FIRST
            ),
            node.consumer("check", {"%DLQ%billing": "*"}, consume_from=FIRST) as dead,
        ):
            assert dead.poll(timeout_s=TIMEOUT_S)
        yield node


def typed(text: str, home: Path, namesrv: str) -> str:
    """A block as a reader at `home` types it: packages are there, addresses are those of here."""
    text = re.sub(r"^(?:pip install|make) .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^congreve lake follow .*$", FOLLOWED, text, flags=re.MULTILINE)
    for written, here in (
        # The folders of broker.conf must be empty.
        (
            "congreve store restore /backup/monday -c",
            "sed -i 's#=data/store#=data/empty#' broker.conf\n{}",
        ),
        ("127.0.0.1:9876", namesrv),
        ("10.0.0.5:9876", namesrv),
        ("/srv/lake", str(home / "lake")),
        ("/backup/", f"{home}/backup/"),
        ("/data/restored", str(home / "restored")),
        # What the list above names.
        ("recall HANDLE", "recall $(congreve timers list -t orders | awk 'END {print $NF}')"),
    ):
        text = text.replace(written, here.format(written) if "{}" in here else here)
    return text


def run(text: str, home: Path, namesrv: str) -> str:
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        cwd=home,
        env={
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "NAMESRV_ADDR": namesrv,
            "HOME": str(home),
            "XDG_CONFIG_HOME": "",
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("page", "text", "shown"), found(RUN), ids=lambda part: part[:40])
def test_a_block_runs_as_written(
    home: Path, node: congreve.Node, page: str, text: str, shown: str
) -> None:
    assert re.search(shown, run(typed(text, home, node.address), home, node.address), re.M), page


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.mark.parametrize(("page", "text", "shown"), found(SERVERS), ids=lambda part: part[:40])
def test_servers_start_as_written(
    tmp_path: Path, home: Path, node: congreve.Node, page: str, text: str, shown: str
) -> None:
    """At free ports of this machine."""
    settings = (home / "broker.conf").read_text().replace("data/", f"{tmp_path}/data/")
    (tmp_path / "broker.conf").write_text(settings)
    for written, here in (
        ("broker.conf", str(tmp_path / "broker.conf")),
        ("/var/lib/congreve", str(tmp_path)),
        ("127.0.0.1:9876", node.address),
        ("ns1:9876;ns2:9876", node.address),
        ("10.0.0.5", "127.0.0.1"),
        ("--port 9876", "--port 0"),
    ):
        text = text.replace(written, here)
    text = re.sub(r"(0\.0\.0\.0:)\d+", lambda found: f"{found[1]}{free_port()}", text)
    usual = {
        "run": ["--port", "0", "--namesrv-port", "0", "--metrics-port", "0"],
        "console": ["--port", "0"],
        "namesrv": ["--port", "0"],
    }
    servers = []
    try:
        for words in commands(text):
            command = [*words, *usual.get(words[0], [])]
            if words[0] in ("run", "namesrv") and "--data" not in words:
                command += ["--data", str(tmp_path / words[0])]
            servers.append(Daemon(*command))
        assert re.search(shown, servers[-1].ready), page
    finally:
        assert [server.stop() for server in servers] == [0] * len(servers)


@pytest.mark.parametrize("module", {each for _, _, each in found(ELSEWHERE)})
def test_other_tests_of_blocks_exist(module: str) -> None:
    assert (Path(__file__).parents[3] / module).exists()
