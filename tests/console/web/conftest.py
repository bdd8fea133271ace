"""Brokers with some messages, and their console, called without a server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import congreve
from congreve.client import Message, SyncProducer
from congreve.console.web.options import Options
from congreve.console.web.serving.site import Site

TIMEOUT_S = 60.0
QUEUES = 2
ADMIN, ADMIN_SECRET = "administrator", "a-secret-of-the-administrator"
READER, READER_SECRET = "orders-reader", "a-secret-of-the-reader"
ACCOUNTS = f"""accounts:
  - {{accessKey: {ADMIN}, secretKey: {ADMIN_SECRET}, admin: true}}
  - {{accessKey: {READER}, secretKey: {READER_SECRET}, topicPerms: [orders=SUB]}}
"""
MARKUP = "<img src=x onerror=alert(1)>&\"'"
"""Markup that a page must show as text, in every field."""


@dataclass
class Console:
    """A console and its client, which follows redirects as a browser does."""

    site: Site
    http: TestClient

    def page(self, path: str, status: int = 200) -> str:
        """The text of a page."""
        answer = self.http.get(path)
        assert answer.status_code == status, answer.text[-2000:]
        return answer.text

    def token(self, path: str = "/audit") -> str:
        """The token of the session, as a form has it."""
        found = re.search(r'name="csrf" value="(\w+)"', self.page(path))
        assert found is not None
        return found[1]

    def post(self, path: str, status: int = 200, **fields: str | list[str]) -> str:
        """Send a form; returns the page that follows."""
        fields = {"csrf": self.token("/topics"), **fields}
        answer = self.http.post(path, data=fields)
        assert answer.status_code == status, answer.text[-2000:]
        return answer.text

    def read_again(self) -> None:
        """Make the next page read topics and groups again."""
        self.site.gate._unsigned.changed()

    def eventually(self, path: str, wanted: str | Callable[[str], object]) -> str:
        """The page once it has this text; figures are read in the background."""
        is_there = wanted if callable(wanted) else lambda text: wanted in text
        deadline = time.monotonic() + TIMEOUT_S
        while not is_there(text := self.page(path)):
            assert time.monotonic() < deadline, f"{path} does not show it:\n{text[-3000:]}"
            time.sleep(0.05)
            if "Lag is being read" not in text and "being counted" not in text:
                self.read_again()
        return text


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[congreve.Node]:
    """A name server and a broker without accounts, with the topic `orders`."""
    data = tmp_path_factory.mktemp("console-node")
    with congreve.serve(data, enablePropertyFilter="true", defaultTopicQueueNums=str(QUEUES)) as it:
        with it.producer("writers") as producer:
            fill(producer)
        yield it


def fill(producer: SyncProducer) -> None:
    """Send ten orders, and one message that is all markup."""
    for number in range(10):
        producer.send(
            Message(
                topic="orders",
                body=f'{{"order": {number}, "note": "text-{number}"}}'.encode(),
                keys=f"order-{number}",
                tags="new" if number % 2 else "old",
                properties={"price": str(number)},
            )
        )
    producer.send(
        Message(
            topic="markup",
            body=MARKUP.encode(),
            keys="<b>key</b>",
            tags="<script>",
            properties={"<i>name": MARKUP},
        )
    )


@pytest.fixture(scope="module")
def console(node: congreve.Node) -> Iterator[Console]:
    """A console on loopback for brokers without accounts: no login."""
    yield from serve_console(Options(namesrv=node.address))


def serve_console(options: Options) -> Iterator[Console]:
    """Start a console, and stop it at the end."""
    site = Site(options)
    with TestClient(site.app, base_url="http://127.0.0.1") as http:
        yield Console(site, http)


@pytest.fixture(scope="module")
def guarded_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[congreve.Node]:
    """A broker with accounts."""
    folder = tmp_path_factory.mktemp("console-accounts")
    accounts = folder / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    settings = {"aclEnable": "true", "aclFolder": str(folder), "brokerAccessKey": ADMIN}
    with congreve.serve(folder / "data", **settings) as it:
        yield it


@pytest.fixture
def guarded(guarded_node: congreve.Node) -> Iterator[Console]:
    """A console for brokers with accounts, before the login."""
    yield from serve_console(Options(namesrv=guarded_node.address))


def login(console: Console, access_key: str, secret: str, status: int = 200) -> str:
    """Send the login form; returns the page that follows."""
    token = console.token("/login")
    answer = console.http.post(
        "/login", data={"csrf": token, "access_key": access_key, "secret_key": secret}
    )
    assert answer.status_code == status, answer.text[-2000:]
    return answer.text


@pytest.fixture(scope="session")
def templates() -> list[Path]:
    """The files of all pages."""
    from congreve.console.web.pages import TEMPLATES

    return sorted(TEMPLATES.rglob("*.html"))
