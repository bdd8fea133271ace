"""With --hide-bodies only some accounts see bodies of messages; all others see their sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import congreve
from congreve.client import Message
from congreve.console.web.options import Options
from congreve.console.web.views import PAGES
from congreve.records.message.topics import TRACE_TOPIC
from tests.console.web.conftest import ADMIN, ADMIN_SECRET, Console, login, serve_console

SEARCH = "Text in the body"


@pytest.fixture
def hiding(node: congreve.Node) -> Iterator[Console]:
    """A console without accounts that hides bodies."""
    yield from serve_console(Options(namesrv=node.address, hide_bodies=True, bodies_for=(ADMIN,)))


def test_messages_are_shown_with_sizes_instead_of_bodies(hiding: Console) -> None:
    text = hiding.page("/messages?topic=orders")
    assert "not shown: " in text and "text-1" not in text
    assert "order-1" in text and SEARCH not in text
    path = re.search(r'href="(/messages/orders/[^"?]+)"', text)
    assert path is not None
    one = hiding.page(path[1])
    assert "not shown: " in one and "text-" not in one and "Download" not in one
    hiding.page(path[1] + "/body", 403)


def test_bodies_that_are_hidden_are_not_searched(hiding: Console) -> None:
    text = hiding.page("/messages?topic=orders&by=newest&text=text-1")
    assert "does not search bodies" in text and "order-1" not in text
    hiding.page("/messages/tail/events?topic=orders&text=text-1", 403)


def test_dead_letters_are_neither_edited_nor_exported_with_bodies(hiding: Console) -> None:
    hiding.page("/dead-letters/some-group/edit/broker/0/0", 403)
    hiding.post("/dead-letters/some-group/edit/broker/0/0", 403, body="x")


def test_no_page_shows_a_body_that_looks_like_a_trace(node: congreve.Node, hiding: Console) -> None:
    fields = ["Pub", "1", "region", "SECRET-group", "SECRET-topic", "trace-key", "", "", "SECRET"]
    body = "\x01".join([*fields, "9", "1", "0", "id", "true"]).encode()
    with node.producer("writers") as producer:
        producer.send(Message(topic="traced", body=body, keys="trace-key"))
        producer.send(Message(topic=TRACE_TOPIC, body=body, keys="trace-key"))
    hiding.read_again()
    asked = "/traces?id=trace-key&topic="
    hiding.eventually(asked + TRACE_TOPIC, "SECRET-group")
    assert "SECRET" not in hiding.page(asked + "traced")
    streams = {"/live", "/messages/tail/events"}
    others = [path for path in PAGES.keys() - streams if "{" not in path]
    for path in [*others, "/topics/traced", "/messages?by=key&key=trace-key&topic=traced"]:
        assert "SECRET" not in hiding.http.get(path).text, path


@pytest.mark.parametrize(("bodies_for", "seen"), [((ADMIN,), True), (("another",), False)])
def test_an_account_may_see_bodies_nevertheless(
    guarded_node: congreve.Node, bodies_for: tuple[str, ...], seen: bool
) -> None:
    options = Options(namesrv=guarded_node.address, hide_bodies=True, bodies_for=bodies_for)
    for console in serve_console(options):
        login(console, ADMIN, ADMIN_SECRET)
        assert (SEARCH in console.page("/messages")) is seen
