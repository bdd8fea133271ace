"""The commands of a user with a running broker."""

import json
import subprocess
import sys
import time
from importlib import import_module

import pytest

from tests.console.conftest import congreve


@pytest.mark.parametrize("command", [[], ["broker"], ["topic"], ["cat"]])
def test_help_imports_no_heavy_module(command: list[str]) -> None:
    program = (
        "import sys; from congreve.console.main import cli;"
        f"cli([*{command}, '--help'], standalone_mode=False);"
        "print([m for m in ('numpy', 'rich', 'uvloop') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.fixture(scope="module")
def orders(namesrv: str) -> str:
    """A topic of one queue with five messages."""
    created = congreve("topic", "create", "orders", "-q", "1", "--output", "json", namesrv=namesrv)
    assert json.loads(created.stdout)[0]["queues"] == 1, created.stderr
    lines = "".join(f"message {i}\n" for i in range(5))
    sent = congreve("send", "-t", "orders", "--tags", "new", stdin=lines, namesrv=namesrv)
    assert sent.returncode == 0 and "sent 5" in sent.stderr
    return "orders"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-o", "beginning", "-e"), range(5)),
        (("-o", "3", "-e"), range(3, 5)),
        (("-o", "-2", "-e"), range(3, 5)),
        (("-o", "end", "-e"), range(0)),
        (("-o", "beginning", "-c", "2"), range(2)),
        (("-q", "0", "-e"), range(5)),
        (("-o", "-0", "-e"), range(0)),
    ],
)
def test_cat_starts_and_stops_at_the_given_offsets(
    orders: str, namesrv: str, arguments: tuple[str, ...], expected: range
) -> None:
    # With an option that chooses what to print, stdin is not read as messages.
    shown = congreve("cat", "-t", orders, *arguments, stdin="not to be sent\n", namesrv=namesrv)
    assert shown.stdout.splitlines() == [f"message {i}" for i in expected], shown.stderr


def test_an_import_of_the_main_module_runs_no_command() -> None:
    main_module = import_module("congreve.__main__")
    assert main_module.__name__ == "congreve.__main__"


def test_cat_shows_all_fields_of_a_message_as_json(orders: str, namesrv: str) -> None:
    shown = congreve("cat", "-C", "-t", orders, "-c", "1", "-J", namesrv=namesrv)
    message = json.loads(shown.stdout)
    assert (message["body"], message["tags"], message["offset"]) == ("message 0", "new", 0)


def test_cat_sends_the_lines_of_standard_input(namesrv: str) -> None:
    sent = congreve("cat", "-t", "piped", stdin="one\ntwo\n", namesrv=namesrv)
    assert "sent 2" in sent.stderr
    shown = congreve("cat", "-C", "-t", "piped", "-e", namesrv=namesrv)
    assert sorted(shown.stdout.split()) == ["one", "two"]


def test_each_line_is_sent_as_soon_as_it_is_read(namesrv: str) -> None:
    command = [sys.executable, "-m", "congreve", "cat", "-n", namesrv, "-t", "slow"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as sending:
        assert sending.stdin is not None
        sending.stdin.write(b"first\nno")
        sending.stdin.flush()
        shown = None
        deadline = time.monotonic() + 60
        while shown is None or (not shown.stdout and time.monotonic() < deadline):
            shown = congreve("cat", "-t", "slow", "-e", namesrv=namesrv)
        assert shown.stdout == "first\n"
        _, errors = sending.communicate(b" newline", timeout=60)
    assert errors == b"sent 2 to slow\n"


def test_a_line_that_is_too_long_is_an_error_after_the_lines_before_it_were_sent(
    namesrv: str,
) -> None:
    longest = "x" * (4 << 20)
    sent = congreve("cat", "-t", "long", stdin=f"one\n{longest}\n{longest}y", namesrv=namesrv)
    assert sent.returncode == 1
    assert "sent 2 to long" in sent.stderr and "line 3 has more than 4194304 bytes" in sent.stderr


def test_a_message_may_be_any_bytes(namesrv: str) -> None:
    command = [sys.executable, "-m", "congreve", "send", "-n", namesrv, "-t", "raw", "-m", b"\xff"]
    subprocess.run(command, check=True, capture_output=True)
    command = [sys.executable, "-m", "congreve", "cat", "-n", namesrv, "-t", "raw", "-e"]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"\xff\n"


def test_an_empty_line_is_reported_and_later_lines_are_sent(namesrv: str) -> None:
    sent = congreve("send", "-t", "gaps", stdin="one\n\nthree\n", namesrv=namesrv)
    assert sent.returncode == 0
    assert sent.stderr.splitlines() == ["line 2 is empty: skipped", "sent 2 to gaps"]
    shown = congreve("cat", "-C", "-t", "gaps", "-e", namesrv=namesrv)
    assert sorted(shown.stdout.split()) == ["one", "three"]


def test_topics_are_listed_described_and_deleted(orders: str, namesrv: str) -> None:
    def ask(*arguments: str) -> list[dict[str, object]]:
        run = congreve("topic", *arguments, "--output", "json", namesrv=namesrv)
        assert run.returncode == 0, run.stderr
        found: list[dict[str, object]] = json.loads(run.stdout)
        return found

    assert {"topic": orders} in ask("list")
    assert ask("stats", orders)[0]["max"] == 5
    assert ask("route", orders)[0]["read_queues"] == 1
    ask("create", "gone")
    assert ask("delete", "gone")
    assert {"topic": "gone"} not in ask("list")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cat", "-C", "-t", "nowhere", "-e"), "nowhere"),
        (("cat", "-C", "-t", "orders", "-o", "soon"), "soon"),
        (("cat", "-P", "-t", "orders", "-e"), "-P sends"),
        (("cat", "-t", "orders", "-c", "0"), "0 is not in the range"),
        (("topic", "stats", "nowhere"), "nowhere"),
        (("topic", "delete", "nowhere"), "nowhere"),
        (("topic", "create", "no good"), "no good"),
        (("topic", "list", "-n", "127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
def test_errors_name_the_failed_operation(
    orders: str, namesrv: str, arguments: tuple[str, ...], says: str
) -> None:
    run = congreve(*arguments, namesrv=namesrv)
    assert run.returncode != 0
    assert says in run.stderr
    assert "Traceback" not in run.stderr
