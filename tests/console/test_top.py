"""congreve top against a broker, and its rates."""

import msgspec
import pytest

from congreve.base.byte_size import readable_size
from congreve.console.top import Group, Readings, Topic, Varz, screen
from congreve.node import serve

from .conftest import congreve


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
    readings = Readings(lambda: next(answers), 10, lambda: next(times))
    first, second = text_of(screen(readings.next())), text_of(screen(readings.next()))
    assert "100 messages/s in" in first and "ready" in first and "75% used" in first
    assert first.splitlines()[5].split() == ["T", "100", "100.0", "KiB/s", "500"]
    assert first.splitlines()[-1].split() == ["G[red]", "T", "7", "1.5s", "20", "0"]
    assert "0 messages/s in" in second and "NOT READY: the disk is full" in second


def test_the_screen_shows_the_figures_of_a_broker(tmp_path) -> None:
    with serve(tmp_path, metricsPort=0) as node:
        with node.producer("p") as producer:
            from congreve.client import Message

            producer.send(Message(topic="orders", body=b"x"))
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
    assert shown.returncode == 0, shown.stderr
    assert "ready" in shown.stdout and "orders" in shown.stdout
    gone = congreve("top", "--once", "--url", url)
    assert gone.returncode == 1
    assert "metricsPort" in gone.stderr and len(gone.stderr.splitlines()) == 1


@pytest.mark.parametrize(("size", "text"), [(0, "0.0 B"), (1536, "1.5 KiB"), (2**60, "1024.0 PiB")])
def test_sizes_have_units(size: int, text: str) -> None:
    assert readable_size(size) == text
