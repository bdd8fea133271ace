"""The pages with a real broker, without JavaScript."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import msgspec
import pytest
from harness.wire import Wire

import congreve
from congreve.client import ConsumeFrom, Message, SyncAdminClient, SyncShareConsumer
from congreve.client.admin.client import AdminClient
from congreve.console.web import views
from congreve.console.web.options import Options
from congreve.engine.state.tuned import MeasuredStep, Tuned, machine_of, save_tuned
from congreve.remoting.transport.client import RemotingClient
from tests.console.web.conftest import MARKUP, QUEUES, Console, serve_console

PLAIN = [
    path for path in views.PAGES if "{" not in path and path not in ("/live", "/tuned/picture")
]
BROKER_NAME = re.compile(r'href="/brokers/([^"]+)"')


def broker_of(console: Console) -> str:
    found = BROKER_NAME.search(console.page("/brokers"))
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", [path for path in PLAIN if "tail" not in path])
def test_every_page_answers(console: Console, path: str) -> None:
    console.page(path)


def test_the_overview_of_a_healthy_cluster_has_no_findings(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Findings that depend on the disk and the speed of this machine are ignored.
    monkeypatch.setattr("congreve.console.web.views.overview.find_trouble", lambda *_: [])
    text = console.eventually("/", "no group is far behind")
    assert "Nothing is wrong: 1 broker answers" in text


def test_the_list_of_topics_has_names_queues_and_kinds(console: Console) -> None:
    text = console.page("/topics")
    assert 'href="/topics/orders"' in text
    assert 'href="/topics/SCHEDULE_TOPIC_XXXX"' not in text
    assert 'href="/topics/SCHEDULE_TOPIC_XXXX"' in console.page("/topics?kind=system")
    assert 'href="/topics/orders"' not in console.page("/topics?q=mark")
    assert "No topic has such a name" in console.page("/topics?q=nothing-like-this")


def test_a_topic_is_created_changed_and_deleted(console: Console) -> None:
    shown = console.post("/topics", topic="new-topic", read_queues="3", write_queues="3", perm="6")
    assert "saved topic: new-topic" in shown
    assert "/topics/new-topic" in shown
    assert "type the topic" in console.post("/topics/new-topic/delete", 400, confirm="other")
    assert "deleted topic: new-topic" in console.post(
        "/topics/new-topic/delete", confirm="new-topic"
    )
    console.page("/topics/new-topic", 404)


@pytest.mark.parametrize(
    "fields", [{"topic": "a b"}, {"topic": ""}, {"topic": "x", "read_queues": "0"}]
)
def test_an_invalid_topic_is_refused(console: Console, fields: dict[str, str]) -> None:
    console.post("/topics", 400, **fields)


def test_a_system_topic_cannot_be_deleted(console: Console) -> None:
    name = "RMQ_SYS_TRANS_HALF_TOPIC"
    assert "cannot be deleted" in console.post(f"/topics/{name}/delete", 400, confirm=name)


def test_a_message_is_sent_and_found(console: Console) -> None:
    console.post("/topics/orders/send", body="sent by hand", keys="by-hand", tags="t")
    found = console.page("/messages?topic=orders&by=key&key=by-hand")
    assert "sent by hand" in found
    link = re.search(r'href="(/messages/orders/[^"]+)"', found)
    assert link is not None
    page = console.page(link[1])
    assert "sent by hand" in page and "by-hand" in page
    message_id = re.search(r"<h1>Message (\w+)</h1>", page)
    assert message_id is not None
    assert "sent by hand" in console.page(f"/messages?topic=orders&by=id&id={message_id[1]}")
    offset_id = re.search(r'class="mono">(\w{32})<', page)
    assert offset_id is not None
    assert "sent by hand" in console.page(f"/messages?topic=orders&by=id&id={offset_id[1]}")
    body = console.http.get(f"{link[1]}/body")
    assert body.content == b"sent by hand"
    assert body.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("parameters", "numbers"),
    [
        ("by=newest", range(10)),
        ("by=newest&tags=new", range(1, 10, 2)),
        ("by=newest&sql=price+%3E+6", (7, 8, 9)),
        ("by=newest&text=text-4", (4,)),
        ("by=time&begin=2020-01-01T00:00", range(10)),
        ("by=time&end=2020-01-01T00:00", ()),
        ("by=key&key=order-3", (3,)),
    ],
)
def test_messages_are_found(console: Console, parameters: str, numbers: range) -> None:
    text = console.page(f"/messages?topic=orders&{parameters}")
    found = {int(each) for each in re.findall(r"order-(\d)</td>", text)}
    assert found == set(numbers)


def test_a_queue_is_read_from_an_offset(console: Console) -> None:
    texts = [
        console.page(f"/messages?topic=orders&by=offset&queue={queue}&offset=1")
        for queue in range(QUEUES)
    ]
    offsets = {int(each) for text in texts for each in re.findall(r">\d:(\d+)</td>", text)}
    assert offsets and min(offsets) == 1


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("by=offset&queue=99", "has no queue"),
        ("by=newest&sql=price+%3E%3E+6", "answered with code"),
        ("by=time&begin=yesterday", "write for example"),
        ("by=time&begin=2021-01-01T00:00&end=2020-01-01T00:00", "is not before"),
        ("by=key", "enter a key"),
        ("by=offset&queue=0&offset=-1", "a whole number is expected"),
    ],
)
def test_the_error_of_an_invalid_search_gives_the_reason(
    console: Console, parameters: str, said: str
) -> None:
    assert said in console.page(f"/messages?topic=orders&{parameters}")


def test_an_incomplete_search_is_marked_and_can_continue(
    console: Console, node: congreve.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    from congreve.console.web.views import messages

    with node.producer("writers") as producer:
        for number in range(100):
            producer.send(Message(topic="many", body=b"filler-%d" % number, keys=f"k-{number}"))
    limits = msgspec.structs.replace(messages.LIMITS, messages=64)
    monkeypatch.setattr(messages, "LIMITS", limits)
    path = "/messages?topic=many&by=time&begin=2020-01-01T00:00&text=filler-9"
    found: set[str] = set()
    pages = 0
    while path:
        text = console.page(path)
        pages += 1
        found |= set(re.findall(r"k-(\d+)</td>", text))
        more = re.search(r'href="(/messages\?[^"]+)">Continue', text)
        assert bool(more) == ("The search is incomplete" in text)
        path = more[1].replace("&amp;", "&") if more else ""
    assert pages > 1
    assert found == {"9", *(str(number) for number in range(90, 100))}


def test_markup_of_clients_is_shown_as_text(console: Console) -> None:
    listed = console.page("/messages?topic=markup")
    link = re.search(r'href="(/messages/markup/[^"]+)"', listed)
    assert link is not None
    for text in (listed, console.page(link[1]), console.page(f"/messages?topic={MARKUP}")):
        for raw in ("<img src=x", "<b>key", "<i>name", "<script>"):
            assert raw not in text
        assert "&lt;" in text


def test_a_group_is_shown_reset_and_deleted(console: Console, node: congreve.Node) -> None:
    with node.consumer("billing", topics={"orders": "*"}, auto_commit=True) as consumer:
        assert consumer.poll(30)
    with node.producer("writers") as producer:
        producer.send(Message(topic="orders", body=b"waits"))
    console.eventually("/groups?q=billing", lambda text: 'href="/topics/orders"' in text)
    text = console.page("/groups/billing")
    assert "no member of the group is connected" in text
    preview = console.post("/groups/billing/preview", topic="orders", to="first", time="")
    assert "Nothing has changed yet" in preview and "come again" in preview
    assert console.page("/groups/billing").count("come again") == 0
    done = console.post("/groups/billing/reset", topic="orders", to="last", time="")
    assert "reset offsets: billing on orders to the last message" in done
    assert "Messages wait" not in done
    assert "type the group" in console.post("/groups/billing/delete", 400, confirm="no")
    assert "deleted group: billing" in console.post("/groups/billing/delete", confirm="billing")


def test_a_group_with_offsets_alone_is_shown(console: Console, node: congreve.Node) -> None:
    with SyncAdminClient(node.address) as admin:
        admin.groups.reset("restored", "orders", "first")
        assert "restored" in [one.group for one in admin.groups.summaries()]
        assert "restored" not in admin.groups.names()
    console.read_again()
    console.eventually("/groups?q=restored", lambda text: 'href="/topics/orders"' in text)
    assert "messages behind" in console.page("/groups/restored")


def test_a_group_that_pops_shows_what_is_out(console: Console, node: congreve.Node) -> None:
    with node.producer("shop") as producer:
        for _ in range(3):
            producer.send(Message(topic="shared-out", body=b"m"))
    with SyncShareConsumer(
        node.address,
        group="sharing",
        topics={"shared-out": "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ) as consumer:
        while not consumer.receive(1, wait_s=1):
            pass
        console.eventually("/groups?q=sharing", 'href="/groups/sharing"')
        text = console.eventually("/groups/sharing", "In flight")
        assert "Ready" in text and "Came again" in text
        link = re.search(r'href="(/groups/sharing/members/[^"]+)"', text)
        assert link is not None
        assert "Not acknowledged" in console.eventually(link[1], "Queues that it pops")


def test_8154_7999_a_group_that_pops_without_the_order_of_a_topic_is_named(
    console: Console, node: congreve.Node
) -> None:
    topic = {"topic": "in-order", "defaultTopic": "TBW102", "readQueueNums": "1"}
    topic |= {"writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    topic |= {"topicSysFlag": "0", "order": "false", "attributes": "+message.type=FIFO"}
    with Wire(f"127.0.0.1:{node.broker.port}") as wire:
        wire.call(17, topic)
    hint = "without its order, although its message.type is FIFO"
    for group, orderly in (("patient", True), ("hasty", False)):
        with SyncShareConsumer(
            node.address, group=group, topics={"in-order": "*"}, orderly=orderly
        ) as consumer:
            assert consumer.receive(1, wait_s=1) == []
            console.eventually(f"/groups?q={group}", f'href="/groups/{group}"')
            text = console.eventually(f"/groups/{group}", "In flight")
            assert (hint in text) is not orderly


def test_a_member_and_its_running_info_are_shown(console: Console, node: congreve.Node) -> None:
    def listener(message: object) -> None:
        pass

    with node.push_consumer("workers", {"orders": "new || old"}, listener):
        console.eventually("/groups?q=workers", 'href="/groups/workers"')
        text = console.eventually("/groups/workers", "/groups/workers/members/")
        assert "new || old" in text
        link = re.search(r'href="(/groups/workers/members/[^"]+)"', text)
        assert link is not None
        assert "Member of" in console.eventually(link[1], "PROP_CONSUMER_START_TIMESTAMP")


def test_pending_messages_are_shown_and_recalled(console: Console, node: congreve.Node) -> None:
    due_ms = int((time.time() + 3_600) * 1000)
    with node.producer("writers") as producer:
        for number in range(2):
            producer.send(
                Message(
                    topic="orders",
                    body=b"later",
                    keys=f"due-{number}",
                    deliver_ms=due_ms + number,
                )
            )
        producer.send(Message(topic="orders", body=b"later", delay_level=16))
    text = console.eventually("/timers", lambda page: "due-1" in page)
    assert re.search(r'16</td><td class="number">30m</td><td class="number">1<', text)
    assert "<rect" in text
    row = text[text.index("due-0") :]
    handle, message_id = (
        re.search(rf'name="{name}" value="([^"]+)"', row) for name in ("handle", "message_id")
    )
    assert handle is not None and message_id is not None
    fields = {"handle": handle[1], "message_id": message_id[1], "topic": "orders"}
    assert "took back message" in console.post("/timers/recall", **fields)
    text = console.eventually("/timers?topic=orders", lambda page: "due-0" not in page)
    assert "due-1" in text
    console.post("/timers/recall", 400, handle="no handle", topic="orders")


def test_settings_are_shown_beside_their_defaults_and_changed(console: Console) -> None:
    broker = broker_of(console)
    text = console.page(f"/brokers/{broker}")
    row = re.search(r"enablePropertyFilter</td>.*?</tr>", text, re.DOTALL)
    assert row is not None and "true" in row[0] and "false" in row[0] and ">now<" in row[0]
    assert "longPollingEnable" not in text
    assert "longPollingEnable" in console.page(f"/brokers/{broker}?all=1")
    assert 'value="15"' in console.page(f"/brokers/{broker}?edit=transactionCheckMax&all=1")
    done = console.post(f"/brokers/{broker}", key="transactionCheckMax", value="16")
    assert "changed setting: transactionCheckMax = 16" in done
    console.post(f"/brokers/{broker}", 400, key="listenPort", value="1")
    console.post(f"/brokers/{broker}", 400, key="a=b", value="1")
    console.page("/brokers/unknown", 404)


def test_changes_are_in_the_audit_log(console: Console) -> None:
    console.post("/topics", topic="audited", read_queues="1", write_queues="1", perm="6")
    text = console.page("/audit")
    assert "saved topic" in text and "audited" in text


def test_the_requests_of_a_page_do_not_grow_with_topics_or_groups(
    console: Console, node: congreve.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists are made from the same few requests, whatever their length; the list of topics has one
    more for each topic without messages that it shows."""
    requests: list[int] = []
    invoke = RemotingClient.invoke

    async def counted(self, address, command, timeout_s=None):  # type: ignore[no-untyped-def]
        requests.append(command.code)
        return await invoke(self, address, command, timeout_s)

    def count(path: str) -> int:
        console.read_again()
        requests.clear()
        console.eventually(path, lambda text: "Lag is being read" not in text)
        return len(requests)

    async def create(first: int, last: int) -> None:
        async with AdminClient(node.address) as admin:
            for number in range(first, last):
                await admin.create_topic(f"counted-{number}", queues=1)

    import asyncio

    asyncio.run(create(0, 1))
    monkeypatch.setattr(RemotingClient, "invoke", counted)
    few = {path: count(path) for path in ("/topics", "/groups", "/")}
    monkeypatch.undo()
    asyncio.run(create(1, 50))
    monkeypatch.setattr(RemotingClient, "invoke", counted)
    many = {path: count(path) for path in ("/topics", "/groups", "/")}
    assert all(few.values())
    # A slow machine reads figures again meanwhile: a few more, and not one for each topic.
    shown = {"/topics": 50, "/groups": 0, "/": 0}
    assert all(many[path] <= few[path] + shown[path] + 15 for path in few), (few, many)


def test_rates_are_columns_for_a_chart(console: Console) -> None:
    times, incoming, outgoing = json.loads(console.page("/rates"))
    assert len(times) == len(incoming) == len(outgoing) >= 1


def test_the_result_of_tune_says_when_to_measure_again(node: congreve.Node, tmp_path: Path) -> None:
    machine = msgspec.structs.replace(machine_of(str(tmp_path)), kernel="1.0")
    measured = MeasuredStep(
        backend="raw",
        policy="SYNC_FLUSH",
        group_bytes=4096,
        in_flight=1,
        p50_us=200.0,
        p50_us_range=(100.0, 400.0),
        p99_us=500.0,
        bytes_per_s=2e7,
        bytes_per_s_range=(1e7, 3e7),
    )
    tuned = Tuned(
        io_backend="pool",
        flush_disk_type="SYNC_FLUSH",
        reason="it is <quick>",
        machine=machine,
        measured=(measured,),
    )
    for console in serve_console(Options(namesrv=node.address, store=tmp_path)):
        assert "has no result yet" in console.page("/tuned")
        save_tuned(str(tmp_path), tuned)
        text = console.page("/tuned")
        assert "Since then the kernel was 1.0 and is" in text
        assert "The machine was busy" in text
        assert "it is &lt;quick&gt;" in text
        assert "20 <span" in text  # MB/s
        quiet = msgspec.structs.replace(measured, p50_us_range=(190.0, 210.0))
        now = machine_of(str(tmp_path))
        save_tuned(str(tmp_path), msgspec.structs.replace(tuned, machine=now, measured=(quiet,)))
        text = console.page("/tuned")
        assert "Since then" not in text
        assert "busy" not in text
