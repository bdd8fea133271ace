"""The web console with RocketMQ 4.9.4."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from harness.cluster import Cluster
from starlette.testclient import TestClient

from congreve.client import ConsumeFrom, ConsumerSettings, Message, SyncProducer, SyncPushConsumer
from congreve.client.observability.trace import trace_record
from congreve.console.web.options import Options
from congreve.console.web.serving.site import Site

KINDS = ("java",)
TIMEOUT_S = 90.0
COUNT = 10


class Pages:
    """The console's pages."""

    def __init__(self, site: Site, http: TestClient) -> None:
        self._site = site
        self._http = http

    def get(self, path: str) -> str:
        """A page that must be there."""
        answer = self._http.get(path)
        assert answer.status_code == 200, answer.text[-2000:]
        return answer.text

    def post(self, path: str, **fields: str | list[str]) -> str:
        """Send a form; returns the page that follows."""
        token = re.search(r'name="csrf" value="(\w+)"', self.get("/topics"))
        assert token is not None
        answer = self._http.post(path, data={"csrf": token[1], **fields})
        assert answer.status_code == 200, answer.text[-2000:]
        return answer.text

    def eventually(self, path: str, wanted: Callable[[str], object]) -> str:
        """The page once it is as wanted."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._http.get(path)
            if answer.status_code == 200 and wanted(answer.text):
                return answer.text
            assert time.monotonic() < deadline, answer.text[-3000:]
            time.sleep(0.1)
            self._site.gate._unsigned.changed()


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> Iterator[Pages]:
    """The console without a server."""
    site = Site(Options(namesrv=cluster.namesrv.address))
    with TestClient(site.app, base_url="http://127.0.0.1") as http:
        yield Pages(site, http)


@pytest.fixture(scope="module")
def orders(cluster: Cluster, pages: Pages) -> str:
    """A topic with ten messages, made by the console."""
    name = f"console-{uuid.uuid4().hex[:8]}"
    pages.post("/topics", topic=name, read_queues="2", write_queues="2", perm="6")
    with SyncProducer(cluster.namesrv.address, group="writers") as producer:
        for number in range(COUNT):
            producer.send(
                Message(
                    topic=name,
                    body=b"text-%d" % number,
                    keys=f"key-{number}",
                    tags="odd" if number % 2 else "even",
                )
            )
    return name


def keys(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"key-(\d+)</td>", text)}


@pytest.mark.parametrize(
    "path", ["/", "/topics?kind=all", "/groups", "/timers", "/brokers", "/dead-letters", "/rates"]
)
def test_each_page_answers(pages: Pages, path: str) -> None:
    pages.get(path)


def test_settings_and_figures_are_shown(pages: Pages, cluster: Cluster) -> None:
    text = pages.eventually(  # RocketMQ has these figures a while after its start
        f"/brokers/{cluster.broker.broker_name}?all=1",
        lambda text: "putMessageDistributeTime" in text,
    )
    assert "RocketMQ broker" in text
    assert "brokerPermission" in text and "putMessageDistributeTime" in text
    done = pages.post(
        f"/brokers/{cluster.broker.broker_name}", key="transactionCheckMax", value="14"
    )
    assert "changed setting" in done
    assert re.search(r"transactionCheckMax</td><td[^>]*><b>14</b>", done)


def test_messages_are_found(pages: Pages, orders: str) -> None:
    everything = set(range(COUNT))
    path = f"/messages?topic={orders}"
    assert keys(pages.eventually(path, lambda text: keys(text) == everything)) == everything
    assert keys(pages.get(f"{path}&tags=odd")) == set(range(1, COUNT, 2))
    assert keys(pages.get(f"{path}&text=text-7")) == {7}
    assert keys(pages.get(f"{path}&by=time&begin=2020-01-01T00:00")) == everything
    assert keys(pages.get(f"{path}&by=time&end=2020-01-01T00:00")) == set()
    found = pages.eventually(f"{path}&by=key&key=key-4", lambda text: keys(text) == {4})
    link = re.search(rf'href="(/messages/{orders}/[^"]+)"', found)
    assert link is not None
    page = pages.get(link[1])
    message_id = re.search(r"<h1>Message (\w+)</h1>", page)
    offset_id = re.search(r'class="mono">(\w{32})<', page)
    assert message_id is not None and offset_id is not None
    for each in (message_id[1], offset_id[1]):
        assert keys(pages.get(f"{path}&by=id&id={each}")) == {4}


def test_offsets_are_reset(pages: Pages, orders: str, cluster: Cluster) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    got: set[str] = set()
    with SyncPushConsumer(
        cluster.namesrv.address,
        group=group,
        topics={orders: "*"},
        listener=lambda message: got.add(message.keys),
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        pages.eventually(
            f"/groups/{group}", lambda text: len(got) == COUNT and f"{group}/members" in text
        )
    none_behind = "<b>0</b><span>messages behind"
    pages.eventually(
        f"/groups/{group}",
        lambda text: "No member is connected" in text and none_behind in text,
    )
    preview = pages.post(f"/groups/{group}/preview", topic=orders, to="first", time="")
    assert f"<b>{COUNT}</b><span>messages will come again" in preview
    done = pages.post(f"/groups/{group}/reset", topic=orders, to="first", time="")
    assert f"{COUNT} repeated" in done
    assert f"<b>{COUNT}</b><span>messages behind" in done


def test_dead_letters_are_resent(pages: Pages, orders: str, cluster: Cluster) -> None:
    group = f"post-{uuid.uuid4().hex[:8]}"

    def refuse(message: object) -> None:
        raise ValueError

    with SyncPushConsumer(
        cluster.namesrv.address,
        group=group,
        topics={orders: "odd"},
        listener=refuse,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        settings=ConsumerSettings(max_reconsume_times=0),
    ):
        path = f"/dead-letters/{group}"
        pages.eventually(path, lambda text: text.count('name="letter"') == COUNT // 2)
    begun = pages.post(f"{path}/resend", which="all", to="topic")
    link = re.search(r'hx-get="([^"]+)"', begun)
    shown = pages.eventually(link[1], lambda text: "still" not in text) if link else begun
    assert f"<b>{COUNT // 2}</b><span>sent again" in shown


def test_a_trace_is_shown(pages: Pages, cluster: Cluster) -> None:
    name = f"traces-{uuid.uuid4().hex[:8]}"
    record = trace_record(
        *("Pub", 1_700_000_000_000, "r", "p", "t", "traced-id", "tag", "key", "h:1", 5, 7, 0),
        *("offset-id", True),
    )
    pages.post("/topics", topic=name, read_queues="1", write_queues="1", perm="6")
    with SyncProducer(cluster.namesrv.address, group="tracers") as producer:
        producer.send(Message(topic=name, body=record.encode(), keys="traced-id"))
    text = pages.eventually(f"/traces?id=traced-id&topic={name}", lambda page: "success" in page)
    assert "2023-11-14 22:13:20.000 UTC" in text
