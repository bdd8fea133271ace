"""With --hide-bodies only some accounts see bodies of messages; all others see their sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import congreve
from congreve.console.web.options import Options
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


@pytest.mark.parametrize(("bodies_for", "seen"), [((ADMIN,), True), (("another",), False)])
def test_an_account_may_see_bodies_nevertheless(
    guarded_node: congreve.Node, bodies_for: tuple[str, ...], seen: bool
) -> None:
    options = Options(namesrv=guarded_node.address, hide_bodies=True, bodies_for=bodies_for)
    for console in serve_console(options):
        login(console, ADMIN, ADMIN_SECRET)
        assert (SEARCH in console.page("/messages")) is seen
