"""``congreve send`` with properties, delays and queues; ``cat`` and ``find`` with filters."""

import json
import time
from typing import Any

import pytest

from congreve.client.errors import ClientError
from congreve.console.report import body_fields
from tests.console.conftest import congreve


def ok(namesrv: str, *arguments: str, stdin: str = "") -> str:
    done = congreve(*arguments, stdin=stdin, namesrv=namesrv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def parcels(namesrv: str) -> tuple[str, list[dict[str, Any]]]:
    """A topic of two queues with four messages, and what `send` said about each."""
    ok(namesrv, "topic", "create", "parcels", "-q", "2")
    sent = []
    for number, (tag, queue) in enumerate([("red", 0), ("red", 1), ("blue", 0), ("green", 1)]):
        options = (
            *("-m", f"parcel {number}", "--tags", tag, "--keys", f"k{number} all"),
            *("-p", f"weight={number}", "-p", "region=eu", "-q", str(queue)),
        )
        sent += objects(ok(namesrv, "send", "-t", "parcels", *options, "--output", "json"))
        time.sleep(0.01)  # each has a store time of its own
    return "parcels", sent


Parcels = tuple[str, list[dict[str, Any]]]


def test_send_says_where_each_message_is(parcels: Parcels) -> None:
    _, sent = parcels
    assert [(row["queue"], row["offset"], row["status"]) for row in sent] == [
        *((0, 0, "SEND_OK"), (1, 0, "SEND_OK"), (0, 1, "SEND_OK"), (1, 1, "SEND_OK"))
    ]


def test_a_queue_that_is_not_there_is_an_error_with_those_that_are(
    parcels: Parcels, namesrv: str
) -> None:
    refused = congreve("send", "-t", "parcels", "-m", "x", "-q", "7", namesrv=namesrv)
    assert refused.returncode == 1
    assert "no queue 7" in refused.stderr and ":0, " in refused.stderr
    refused = congreve("send", "-t", "parcels", "-m", "x", "-p", "weight", namesrv=namesrv)
    assert (refused.returncode, "NAME=VALUE" in refused.stderr) == (2, True)


def test_lines_with_a_delay_are_sent_one_by_one(namesrv: str) -> None:
    lines = "one\ntwo\n"
    sent = objects(
        ok(namesrv, "send", "-t", "later-parcels", "--at", "+2h", "--output", "json", stdin=lines)
    )
    assert [row["count"] for row in sent] == [1, 1]
    assert all(row["recall_handle"] for row in sent)
    listed = json.loads(ok(namesrv, "timers", "list", "-t", "later-parcels", "--output", "json"))
    assert len(listed) == 2 and listed[0]["due_ms"] > time.time() * 1000 + 7_000_000


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (("--tag", "red"), {0, 1}),
        (("--tag", "red || blue"), {0, 1, 2}),
        (("--sql", "weight > 1 AND region = 'eu'"), {2, 3}),
        (("--from", "-15m"), {0, 1, 2, 3}),
        (("--from", "+1h"), set()),
        (("--to", "-15m"), set()),
        (("-q", "1"), {1, 3}),
    ],
)
def test_cat_prints_the_messages_that_pass(
    parcels: Parcels, namesrv: str, options: tuple[str, ...], numbers: set[int]
) -> None:
    shown = ok(namesrv, "cat", "-t", "parcels", "-e", *options)
    assert sorted(shown.splitlines()) == [f"parcel {number}" for number in sorted(numbers)]


def test_cat_prints_from_a_store_time_to_another(parcels: Parcels, namesrv: str) -> None:
    whole = objects(ok(namesrv, "cat", "-t", "parcels", "-e", "--output", "json"))
    times = {row["body"]: row["stored_ms"] for row in whole}
    period = ("--from", str(times["parcel 1"]), "--to", str(times["parcel 3"]))
    shown = ok(namesrv, "cat", "-t", "parcels", *period)
    assert sorted(shown.splitlines()) == ["parcel 1", "parcel 2"]
    found = json.loads(ok(namesrv, "find", "-t", "parcels", *period, "--output", "json"))
    assert [row["body"] for row in found] == ["parcel 1", "parcel 2"]


def test_cat_has_a_format_and_properties(parcels: Parcels, namesrv: str) -> None:
    form = r"%q/%o %g [%k] %S %%\t%s;"
    shown = ok(namesrv, "cat", "-t", "parcels", "-q", "0", "-e", "-f", form)
    assert shown == "0/0 red [k0 all] 8 %\tparcel 0;0/1 blue [k2 all] 8 %\tparcel 2;"
    shown = ok(namesrv, "cat", "-t", "parcels", "-q", "0", "-c", "1", "--properties")
    properties, body = shown.rstrip("\n").split("\t")
    assert "weight=0" in properties.split(",") and body == "parcel 0"
    refused = congreve("cat", "-t", "parcels", "-e", "-f", "%x", namesrv=namesrv)
    assert (refused.returncode, "'%x' is none of" in refused.stderr) == (2, True)


def test_messages_are_found_by_key_and_by_both_ids(parcels: Parcels, namesrv: str) -> None:
    def find(*options: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(ok(namesrv, "find", *options, "--output", "json"))
        return found

    _, sent = parcels
    (one,) = find("-t", "parcels", "-k", "k2")
    assert (one["body"], one["properties"]["weight"], one["tags"]) == ("parcel 2", "2", "blue")
    assert len(find("-t", "parcels", "-k", "all")) == 4
    assert len(find("-t", "parcels", "-k", "all", "-c", "3")) == 3
    assert find("-t", "parcels", "-i", sent[2]["message_ids"][0]) == [one]
    assert find("-i", one["offset_id"]) == [one]
    for options, says in (
        (("-t", "parcels", "-k", "nobody"), "no such message"),
        (("-i", "nonsense"), "needs the --topic"),
        (("-k", "k2"), "need a --topic"),
        (("-t", "parcels"), "use one of"),
    ):
        refused = congreve("find", *options, namesrv=namesrv)
        assert refused.returncode != 0 and says in refused.stderr, options


def test_bytes_that_are_no_text_are_found_as_base64(namesrv: str) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "congreve", "send", "-n", namesrv, "-t", "raw-parcels"]
    subprocess.run([*command, "--keys", "k", "-m", b"\xff\xfe"], check=True, capture_output=True)
    (one,) = json.loads(ok(namesrv, "find", "-t", "raw-parcels", "-k", "k", "--output", "json"))
    (same,) = objects(ok(namesrv, "cat", "-t", "raw-parcels", "-e", "--output", "json"))
    for row in (one, same):
        assert (row["body"], row["body_base64"]) == (None, "//4=")
        assert (row["tags"], row["keys"]) == (None, "k")


def test_a_body_that_cannot_be_decompressed_has_its_fault() -> None:
    def read() -> bytes:
        raise ClientError("a message's body is damaged")

    fault = "a message's body is damaged"
    assert body_fields(read, "json") == {"body": None, "fault": fault}
    assert body_fields(read, "table") == {"body": fault}
    assert body_fields(lambda: b"x" * 100, "json") == {"body": "x" * 100}
    assert len(body_fields(lambda: b"x" * 100, "table")["body"] or "") < 100
