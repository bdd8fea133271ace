"""Starts a broker with many topics and groups and the console, and measures its pages.

The time of a page is from its request to its last byte; the first one is requested as soon as the
console is ready. With --screenshot it writes the overview as a PNG file instead.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from congreve.client import AdminClient, Message, Producer
from congreve.client.admin.brokers import in_turns
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.headers import UpdateConsumerOffsetRequestHeader

QUEUES = 4
ROUNDS = 15
PAGES = (
    "/",
    "/topics",
    "/topics?sort=lag",
    "/topics/topic-0001",
    "/messages",
    "/messages?topic=topic-0001",
    "/messages?topic=topic-0001&by=time&text=19",
    "/groups",
    "/groups?behind=1&sort=age",
    "/groups/group-00001",
    "/dead-letters",
    "/timers",
    "/brokers",
    "/brokers/{broker}?all=1",
    "/accounts",
    "/audit",
    "/traces?id=unknown",
)


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A daemon of ours and its ready line."""
    program = [sys.executable, "-m", "congreve", *arguments]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(60)


async def fill(namesrv: str, topics: int, groups: int) -> None:
    """Create topics with messages, and groups that are behind on one topic each."""
    async with AdminClient(namesrv, timeout_s=60) as admin, Producer(namesrv, group="p") as p:
        masters = await admin.masters("DefaultCluster")
        address = next(iter(masters.values()))

        async def topic(number: int) -> None:
            name = f"topic-{number:04}"
            await admin.create_topic(name, queues=QUEUES)
            for count in range(QUEUES):
                bodies = [b'{"order": %d}' % (count * 5 + index) for index in range(5)]
                await p.send_batch([Message(topic=name, body=body) for body in bodies])

        async def group(number: int) -> None:
            name = f"group-{number:05}"
            body = SubscriptionGroupConfig(group_name=name).encode()
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await admin.demand(address, code, body=body)
            for queue in range(QUEUES):
                header = UpdateConsumerOffsetRequestHeader(
                    consumer_group=name,
                    topic=f"topic-{number % topics:04}",
                    queue_id=queue,
                    commit_offset=number % 5,
                )
                code = RequestCode.UPDATE_CONSUMER_OFFSET
                await admin.demand(address, code, header.fields())

        await in_turns(topic, range(topics))
        await in_turns(group, range(groups))


class Browser:
    """Requests over one connection, as a browser keeps it."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)

    def get(self, path: str) -> tuple[float, bytes]:
        """The seconds to the last byte, and the page."""
        began = time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        text = answer.read()
        seconds = time.perf_counter() - began
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {text[-500:].decode()}")
        return seconds, text


def resident(process: subprocess.Popen[str]) -> float:
    """The memory of a process in MiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def cpu_s(process: subprocess.Popen[str]) -> float:
    """The CPU time of a process, including its reads in the background."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(url: str, process: subprocess.Popen[str]) -> dict[str, object]:
    """The times of all pages in ms: the first, the median and the longest of ROUNDS, and the CPU
    time of one."""
    browser = Browser(url)
    found: dict[str, object] = {"idle MiB": round(resident(process), 1)}
    first, text = browser.get("/")
    broker = re.search(rb'href="/brokers/([^"]+)"', text)
    name = broker[1].decode() if broker else ""
    found["first page of all, ms"] = round(first * 1000, 1)
    while b"Lag is being read" in browser.get("/topics")[1]:
        time.sleep(0.05)
    for path in (path.format(broker=name) for path in PAGES):
        first, text = browser.get(path)
        began = cpu_s(process)
        times = sorted(browser.get(path)[0] * 1000 for _ in range(ROUNDS))
        used_ms = (cpu_s(process) - began) * 1000 / ROUNDS
        found[path] = {
            "first ms": round(first * 1000, 1),
            "median ms": round(statistics.median(times), 1),
            "longest ms": round(times[-1], 1),
            "CPU ms": round(used_ms, 1),
            "KiB": round(len(text) / 1024, 1),
        }
    found["MiB afterwards"] = round(resident(process), 1)
    return found


def screenshot(url: str, path: Path, namesrv: str) -> None:
    """Write the overview while messages flow."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.console.web.browser import chromium

    async def traffic() -> None:
        async with Producer(namesrv, group="p") as producer:
            for step in range(60):
                for number in range(20 + step):
                    await producer.send(Message(topic=f"topic-{number % 9:04}", body=b"x" * 100))
                await asyncio.sleep(0.5)

    with chromium() as browser:
        browser.get(url)
        asyncio.run(traffic())
        browser.save_screenshot(str(path))


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(prog="consolepages", description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--screenshot", type=Path, help="write the overview to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        run = ("run", "--data", data, "--port", "0", "--namesrv-port", "0", "--flush", "async")
        with command(*run) as (_, ready):
            namesrv = ready.split("name server ")[1].split(",")[0]
            asyncio.run(fill(namesrv, options.topics, options.groups))
            with command("console", "-n", namesrv, "--port", "0") as (process, line):
                url = line.removeprefix("ready: console ")
                if options.screenshot:
                    screenshot(url, options.screenshot, namesrv)
                else:
                    print(json.dumps(measure(url, process), indent=2))


if __name__ == "__main__":
    main()
