"""congreve top against a broker, and its rates."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import msgspec
import pytest

from congreve.base.byte_size import readable_size
from congreve.base.errors import CongreveError
from congreve.client import Message
from congreve.console.top.figures import SORTS, Group, Readings, Topic, Varz, metrics_url, sort
from congreve.console.top.screen import HEAD_LINES, pages, rows_that_fit, screen
from congreve.node import serve

from .conftest import congreve

LONG = "long" * 25


def varz(end: int, consumed: int, lag: int, trouble: str | None = None) -> Varz:
    return Varz(
        broker="b",
        address="127.0.0.1:1",
        role="ASYNC_MASTER",
        trouble=trouble,
        waiting_answers=0,
        waiting_pulls=0,
        disk_bytes=100,
        disk_free_bytes=25,
        topics=[Topic("T", end=end, stored=end, put_size=end * 1024)],
        groups=[Group("G[red]", "T", consumed=consumed, lag=lag, lag_ms=1_500)],
        runtime={"putLatency99": 2.0},
    )


def text_of(screen: object) -> str:
    from rich.console import Console

    console = Console(width=120)
    with console.capture() as captured:
        console.print(screen)
    return captured.get()


def test_rates_are_those_since_the_last_screen() -> None:
    answers = iter([varz(0, 0, 9), varz(500, 100, 7), varz(500, 100, 7, "the disk is full")])
    times = iter([0.0, 5.0, 10.0])
    readings = Readings(lambda: next(answers), lambda: next(times))
    first, second = (text_of(screen(readings.next(), 10)) for _ in range(2))
    assert "100 messages/s in" in first and "ready" in first and "75% used" in first
    assert first.splitlines()[5].split() == ["T", "100", "100.0", "KiB/s", "500"]
    assert first.splitlines()[-1].split() == ["G[red]", "T", "7", "1.5s", "20", "0"]
    assert "0 messages/s in" in second and "NOT READY: the disk is full" in second


def many(topics: int) -> Varz:
    figures = varz(0, 0, 9)
    figures.topics = [Topic(f"T{i:03}", stored=i * 7 % topics) for i in range(topics)]
    return figures


def test_pages_show_each_topic_once() -> None:
    figures = Readings(lambda: many(25)).next()
    assert pages(figures, 10) == 3
    shown = [text_of(screen(figures, 10, page, "q quit")) for page in range(3)]
    rows = [[line for line in text.splitlines() if line.startswith("T")] for text in shown]
    assert [len(page) for page in rows] == [10, 10, 5]
    assert len({line.split()[0] for page in rows for line in page}) == 25
    assert shown[2].splitlines()[-1] == "page 3 of 3: q quit"
    assert (
        text_of(screen(figures, 10)).splitlines()[-1].startswith("the first 10 of 25 topics and 1")
    )
    assert "the first" not in text_of(screen(figures, 25))


@pytest.mark.parametrize("height", [9, 24, 25, 60])
def test_a_page_fits_the_terminal(height: int) -> None:
    figures = Readings(lambda: many(100)).next()
    figures.groups = figures.groups * 100
    shown = text_of(screen(figures, rows_that_fit(height), 0, "q quit")).splitlines()
    assert height - 2 <= len(shown) <= height
    assert not shown[HEAD_LINES - 1]


def test_tables_are_sorted_by_the_columns_that_they_have() -> None:
    figures = Readings(lambda: many(25)).next()
    figures.groups += [msgspec.structs.replace(figures.groups[0], group="A", lag=99)]
    for column in SORTS:
        sort(figures, column)
        topics, groups = figures.topics, figures.groups
        if column == "stored":
            assert [row.stored for row in topics] == sorted(range(25), reverse=True)
        if column == "topic":
            assert [row.topic for row in topics] == sorted(row.topic for row in topics)
        if column in ("lag", "group"):
            assert groups[0].group == "A"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("broker-a", "http://broker-a:5557"),
        ("broker-a:80", "http://broker-a:80"),
        ("[::1]:5558", "http://[::1]:5558"),
        ("http://broker-a:5557/", "http://broker-a:5557"),
        ("https://broker-a/behind/", "https://broker-a/behind"),
    ],
)
def test_a_metrics_port_is_named_as_a_user_writes_it(text: str, url: str) -> None:
    assert metrics_url(text) == url


@pytest.mark.parametrize("text", ["", "ftp://a:1", "a:port", "http://", "a:99999", "http://[::1"])
def test_an_address_that_names_no_port_is_refused(text: str) -> None:
    with pytest.raises(CongreveError, match="use HOST:PORT"):
        metrics_url(text)


def test_keys_turn_pages_sort_and_end(tmp_path) -> None:
    """In a terminal of 24 lines."""
    with serve(tmp_path, metricsPort=0) as node:
        with node.producer("p") as producer:
            for i in range(12):
                producer.send(Message(topic=f"topic{i:02}", body=b"x"))
        terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        before = termios.tcgetattr(inside)
        url = f"127.0.0.1:{node.broker.config.metrics_port}"
        with subprocess.Popen(
            [sys.executable, "-m", "congreve", "top", "--url", url, "--sort", "topic"],
            stdin=inside,
            stdout=inside,
            env={**os.environ, "TERM": "xterm"},
        ) as running:

            def until(words: bytes) -> bytes:
                seen = b""
                while words not in seen:
                    seen += os.read(terminal, 65536)
                return seen

            first = until(b"page 1 of 2")
            assert b"topic00" in first and b"topic11" not in first
            os.write(terminal, b" ")
            assert b"topic11" in until(b"page 2 of 2")
            os.write(terminal, b"s")
            until(b"(by messages)")
            os.write(terminal, b"q")
            until(b"\x1b[?1049l")
            assert running.wait(60) == 0
        assert termios.tcgetattr(inside)[3] == before[3]


def test_the_screen_shows_the_figures_of_a_broker(tmp_path) -> None:
    with serve(tmp_path, metricsPort=0) as node:
        with node.producer("p") as producer:
            producer.send(Message(topic="orders", body=b"x"))
            producer.send(Message(topic=LONG, body=b"x"))
        url = f"http://127.0.0.1:{node.broker.config.metrics_port}"
        shown = congreve("top", "--once", "--url", url, "--interval", "0.2")
        figures = congreve("top", "--json", "--url", url, "--interval", "0.2")
        others = [
            congreve("top", "--once", "--url", f"{url}{path}") for path in ("/healthz?", "/x")
        ]
    for other in others:
        assert (other.returncode, len(other.stderr.splitlines())) == (1, 1), other.stderr
        assert "not a broker's metrics port" in other.stderr
    assert figures.returncode == 0, figures.stderr
    found = msgspec.json.decode(figures.stdout)
    assert (found["trouble"], found["lag"], found["role"]) == (None, 0, "ASYNC_MASTER")
    assert {
        "topic": "orders",
        "messages_per_second": 0.0,
        "bytes_per_second": 0.0,
        "stored": 1,
    } in found["topics"]
    # Those of the broker's and of its cluster's name are not a user's.
    assert {row["topic"] for row in found["topics"]} == {"orders", LONG}
    assert shown.returncode == 0, shown.stderr
    assert "ready" in shown.stdout and "orders" in shown.stdout
    assert LONG in shown.stdout, "a pipe breaks no line"
    gone = congreve("top", "--once", "--url", url)
    assert gone.returncode == 1
    assert "metricsPort" in gone.stderr and len(gone.stderr.splitlines()) == 1


@pytest.mark.parametrize(("size", "text"), [(0, "0.0 B"), (1536, "1.5 KiB"), (2**60, "1024.0 PiB")])
def test_sizes_have_units(size: int, text: str) -> None:
    assert readable_size(size) == text
