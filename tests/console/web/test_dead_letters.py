"""The page of dead letters: ages, resends with outcomes, edited copies, export."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from html import unescape

import pytest

import congreve
from congreve.client import ConsumeFrom, ConsumerSettings, Message, SyncAdminClient
from tests.console.web.conftest import MARKUP, TIMEOUT_S, Console

GROUP = "post"
BODIES = {f"letter-{number}" for number in range(3)} | {MARKUP}


class RefusedError(Exception):
    """What the listener raises for each message."""


@pytest.fixture(scope="module")
def letters(console: Console, node: congreve.Node) -> Iterator[Console]:
    """A console whose broker has four dead letters of one group."""
    with node.producer("writers") as producer:
        for body in sorted(BODIES):
            producer.send(Message(topic="letters", body=body.encode(), keys="a-key"))

    def refuse(message: object) -> None:
        raise RefusedError

    with node.push_consumer(
        GROUP,
        {"letters": "*"},
        refuse,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        settings=ConsumerSettings(max_reconsume_times=0),
    ):
        deadline = time.monotonic() + TIMEOUT_S
        page = f"/dead-letters/{GROUP}"
        while len(boxes(console.http.get(page).text)) < len(BODIES):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    yield console


def boxes(text: str) -> dict[str, str]:
    """The check boxes of letters by the text of their body."""
    rows = re.findall(r'name="letter" value="([^"]+)".*?class="preview">([^<]*)<', text, re.DOTALL)
    return {unescape(body): value for value, body in rows}


def outcome(console: Console, text: str) -> str:
    """The page of a resend once it has ended."""
    link = re.search(r'hx-get="([^"]+)"', text)
    return text if link is None else console.eventually(link[1], lambda page: "still" not in page)


def test_the_list_has_the_groups_with_their_numbers(letters: Console) -> None:
    letters.read_again()
    pattern = rf'href="/dead-letters/{GROUP}">{GROUP}</a></td><td class="number">{len(BODIES)}<'
    letters.eventually("/dead-letters", lambda text: re.search(pattern, text))


def test_a_group_shows_ages_reasons_and_bodies(letters: Console) -> None:
    text = letters.page(f"/dead-letters/{GROUP}")
    assert set(boxes(text)) == BODIES
    assert "given up by its consumer" in text or "retries used up" in text
    assert "<img src=x" not in text
    letters.page("/dead-letters/unknown", 404)


def test_selected_letters_are_resent_once_with_a_result_for_each(letters: Console) -> None:
    path = f"/dead-letters/{GROUP}"
    chosen = boxes(letters.page(path))["letter-0"]
    for said in ("sent again", "was sent again before"):
        begun = letters.post(f"{path}/resend", letter=[chosen], to="group", which="chosen")
        shown = outcome(letters, begun)
        assert re.search(rf"<td>{said}", shown), shown
    assert "choose the dead letters" in letters.post(f"{path}/resend", 400, which="chosen")
    letters.post(f"{path}/resend", 400, letter=["x"], which="chosen")
    letters.post(f"{path}/resend", 400, which="all", rate="0")


def test_an_edited_copy_of_a_letter_is_sent(letters: Console) -> None:
    path = f"/dead-letters/{GROUP}"
    broker, queue, offset = boxes(letters.page(path))[MARKUP].rsplit(":", 2)
    form = f"{path}/edit/{broker}/{queue}/{offset}"
    assert "<img src=x" not in letters.page(form)
    begun = letters.post(form, body="mended", keys="mended-key", tags="", to="topic")
    assert re.search(r"<b>1</b><span>sent again</span>", outcome(letters, begun))
    assert "mended" in letters.page("/messages?topic=letters&by=key&key=mended-key")


def test_all_letters_are_resent(letters: Console) -> None:
    path = f"/dead-letters/{GROUP}"
    begun = letters.post(f"{path}/resend", which="all", to="topic", rate="1000")
    shown = outcome(letters, begun)
    assert "refused" in shown
    text = letters.page(path)
    assert text.count('class="tag">sent again') == len(BODIES)
    assert 'data-total="0"' in text


def test_letters_of_a_deleted_group_stay_in_the_list(letters: Console, node: congreve.Node) -> None:
    with SyncAdminClient(node.address) as admin:
        admin.groups.delete(GROUP, with_offsets=True)
    letters.read_again()
    letters.eventually("/dead-letters", f'href="/dead-letters/{GROUP}">{GROUP}</a>')
    letters.eventually("/groups", lambda text: f">{GROUP}</a>" not in text)


def test_letters_are_exported_as_lines_of_json(letters: Console) -> None:
    path = f"/dead-letters/{GROUP}/export"
    assert letters.http.get(path).status_code == 405  # a page elsewhere cannot start it
    answer = letters.http.post(path, data={"csrf": letters.token("/topics")})
    assert answer.headers["content-disposition"].startswith("attachment")
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert {row["body"] for row in rows} == BODIES
    assert all(row["topic"] == "letters" and row["deadMs"] for row in rows)
