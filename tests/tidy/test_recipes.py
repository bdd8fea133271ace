"""CONTRIBUTING.md's recipes name the files that something new touches, and no others need it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from congreve.remoting.messages.codes import RequestCode

ROOT = Path(__file__).resolve().parents[2]
RECIPE = re.compile(r"^\*\*… an? ([^*]+)\.\*\* Files: (.*?)\n\n", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`(\w+(?:/\w+)+\.py)`")
RECIPES = dict(RECIPE.findall((ROOT / "CONTRIBUTING.md").read_text()))
MENTION = re.compile(r"\b(?:RequestCode|Code)\.(\w+)")
# A broker asks these itself, or serves them in a second way: compiled, or from an archive.
TWICE = (
    "AWAIT_TABLE_CHANGE GET_ALL_CONSUMER_OFFSET GET_ALL_DELAY_OFFSET GET_ALL_TOPIC_CONFIG",
    "ACK_MESSAGE CHANGE_MESSAGE_INVISIBLETIME CONSUMER_SEND_MSG_BACK POP_MESSAGE RECALL_MESSAGE",
    "CONSUME_MESSAGE_DIRECTLY END_TRANSACTION GET_ALL_MESSAGE_REQUEST_MODE",
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG GET_BROKER_RUNTIME_INFO GET_CONSUMER_RUNNING_INFO",
    "GET_EARLIEST_MSG_STORETIME GET_MAX_OFFSET GET_MIN_OFFSET GET_NAMESRV_CONFIG",
    "GET_ROUTEINFO_BY_TOPIC PULL_MESSAGE QUERY_CONSUMER_OFFSET QUERY_DATA_VERSION QUERY_MESSAGE",
    "REGISTER_BROKER SEARCH_OFFSET_BY_TIMESTAMP SEND_MESSAGE SEND_MESSAGE_V2 SEND_REPLY_MESSAGE",
    "UNREGISTER_BROKER UPDATE_CONSUMER_OFFSET VIEW_MESSAGE_BY_ID",
)


@pytest.mark.parametrize(
    "name", ["request code", "I/O backend", "kind of filter", "broker.conf key"]
)
def test_the_files_of_a_recipe_exist(name: str) -> None:
    paths = PATH.findall(RECIPES[name])
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_a_request_code_is_named_by_its_row_and_one_processor() -> None:
    places: dict[str, set[str]] = {code.name: set() for code in RequestCode}
    for folder in ("broker", "namesrv", "remoting"):
        for path in (ROOT / folder).rglob("*.py"):
            for code in MENTION.findall(path.read_text()):
                if code in places:
                    places[code].add(str(path.relative_to(ROOT)))
    known = {code for line in TWICE for code in line.split()}
    wrong = {code: found for code, found in places.items() if len(found) > 2 and code not in known}
    assert wrong == {}
