"""Quotas of a running broker: sends and pulls."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.broker.errors import ConfigError
from congreve.broker.quota_limits import EVERY_NAME, Kind, Limits, Use, charged_names
from congreve.broker.quotas.quota_file import Quota, QuotaFile
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..guarded import SECRET, guarded
from ..tool import Tool, config_of

PULL = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "commitOffset": "0",
    "subscription": "*",
    "subVersion": "0",
}
LONG_POLL = PULL | {"sysFlag": "6", "suspendTimeoutMillis": "20000"}
NO_WAIT = PULL | {"sysFlag": "4", "suspendTimeoutMillis": "0"}
BUSY = int(ResponseCode.SYSTEM_BUSY)
REST_S = 0.02
"""How long a refused connection is not read."""
IN_FLIGHT = 32


@asynccontextmanager
async def broker_with(
    folder: Path, *quotas: Quota, **settings: object
) -> AsyncIterator[tuple[Broker, Tool]]:
    """A broker with these quotas, and a tool."""
    for quota in quotas:
        QuotaFile(str(folder)).set(quota)
    settings = {"acl_folder": str(folder), **settings}
    async with Broker(config_of(folder / "store", **settings)) as broker:
        client = RemotingClient()
        tool = Tool(broker.address, client)
        try:
            for topic in ("T", "U"):
                assert (await tool.create_topic(topic)).code == 0
            yield broker, tool
        finally:
            await client.close()


async def send_many(tool: Tool, topic: str, count: int) -> Counter[int]:
    """Codes of so many sends, each after the answer to the one before."""
    return Counter([(await tool.send(topic, b"x" * 100)).code for _ in range(count)])


async def test_sends_beyond_the_quota_are_refused(tmp_path: Path) -> None:
    quota = Quota(Kind.TOPIC, "T", Limits(send_messages=5))
    async with broker_with(tmp_path, quota) as (broker, tool):
        begin = time.monotonic()
        codes = await send_many(tool, "T", 30)
        seconds = time.monotonic() - begin
        assert codes.keys() <= {0, BUSY}
        assert 5 <= codes[0] <= 5 + 5 * seconds + 1
        assert broker.store.queues.get("T", 0).max == codes[0]
        assert (await send_many(tool, "U", 30))[0] == 30
        assert broker._access.quotas.limited()[Kind.TOPIC, 0] == codes[BUSY] > 0
        ((shown, counts),) = broker._access.quotas.limited_by_name()
        assert (shown, counts) == (quota, (codes[BUSY], 0, 0, 0, 0))


async def test_refused_connections_are_read_again_after_a_pause(tmp_path: Path) -> None:
    quota = Quota(Kind.TOPIC, "T", Limits(send_messages=1))
    async with broker_with(tmp_path, quota) as (_, tool):
        tasks = [tool.send(topic) for topic in ("T", "U") * 30]
        codes = Counter(answer.code for answer in await asyncio.gather(*tasks))
        assert codes[0] >= 31
        assert codes[0] + codes[BUSY] == 60


async def test_handlers_have_the_same_quotas(tmp_path: Path) -> None:
    quota = Quota(Kind.GROUP, "P", Limits(send_bytes=100))
    async with broker_with(tmp_path, quota) as (broker, tool):
        # The topic does not exist yet: its first send is for a handler.
        assert (await tool.send("new", b"x" * 1000)).code == 0
        assert (await tool.send("newer")).code == BUSY
        assert "newer" not in broker.managers.metadata.topics.table
        assert (await tool.send("T")).code == BUSY


async def test_a_pull_waits_until_its_quota_has_room(tmp_path: Path) -> None:
    quota = Quota(Kind.GROUP, "G", Limits(pull_messages=32))
    async with broker_with(tmp_path, quota) as (broker, tool):
        await tool.heart_beat("G", "T")
        for number in range(32):
            assert (await tool.send("T", b"%d" % number)).code == 0
        begin = time.monotonic()
        for _ in range(3):
            assert len((await tool.ask(11, LONG_POLL)).body) > 32 * 91
        seconds = time.monotonic() - begin
        # Three answers of 32 messages: the bucket covers the first, the last one overdraws it.
        assert seconds >= 1
        assert broker._access.quotas.limited()[Kind.GROUP, 2] > 0


async def test_a_pull_that_may_not_wait_is_refused(tmp_path: Path) -> None:
    quota = Quota(Kind.TOPIC, "T", Limits(pull_bytes=1))
    async with broker_with(tmp_path, quota) as (_, tool):
        await tool.heart_beat("G", "T")
        assert (await tool.send("T")).code == 0
        answers = [await tool.ask(11, NO_WAIT) for _ in range(3)]
        assert [answer.code for answer in answers] == [0, 215, 215]
        assert "quota" in (answers[1].remark or "")
        # Its debt is longer than it may wait.
        short = LONG_POLL | {"suspendTimeoutMillis": "50"}
        assert (await tool.ask(11, short)).code == 215


async def test_a_postponed_pull_commits_its_offset(tmp_path: Path) -> None:
    quota = Quota(Kind.TOPIC, "T", Limits(pull_messages=1))
    async with broker_with(tmp_path, quota) as (broker, tool):
        await tool.heart_beat("G", "T")
        for _ in range(2):
            assert (await tool.send("T")).code == 0
        assert (await tool.ask(11, LONG_POLL)).code == 0
        commits = LONG_POLL | {"sysFlag": "7", "commitOffset": "1", "queueOffset": "1"}
        assert (await tool.ask(11, commits)).code == 0
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 1


async def test_pulls_that_wait_have_a_quota(tmp_path: Path) -> None:
    quota = Quota(Kind.GROUP, "G", Limits(held_pulls=2))
    async with broker_with(tmp_path, quota) as (broker, tool):
        await tool.heart_beat("G", "T")
        assert (await tool.send("T")).code == 0
        assert (await tool.ask(11, NO_WAIT)).code == 0  # the lane has a pull plan of G
        later = LONG_POLL | {"queueOffset": "1"}
        pulls = [asyncio.ensure_future(tool.ask(11, later)) for _ in range(5)]
        refused, waiting = await asyncio.wait(pulls, return_when="FIRST_COMPLETED")
        while len(refused) < 3:
            more, waiting = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
            refused |= more
        assert {pull.result().code for pull in refused} == {215}
        assert broker._access.quotas.limited()[Kind.GROUP, Use.HELD_PULLS] == 3
        assert (await tool.send("T", b"news")).code == 0
        for answer in await asyncio.gather(*waiting):
            assert b"news" in answer.body
        # The places are free again.
        last = LONG_POLL | {"queueOffset": "2", "suspendTimeoutMillis": "100"}
        answers = await asyncio.gather(tool.ask(11, last), tool.ask(11, last))
        assert [answer.code for answer in answers] == [19, 19]


async def pulls_wait(broker: Broker, count: int) -> None:
    """Return when so many pulls wait for messages."""
    assert broker._paths is not None
    while broker._paths.waiting()[1] != count:
        await asyncio.sleep(0.01)


async def test_a_refused_pull_takes_no_place_of_another_quota(tmp_path: Path) -> None:
    group = Quota(Kind.GROUP, "G", Limits(held_pulls=1))
    address = Quota(Kind.ADDRESS, "127.0.0.1", Limits(held_pulls=2))
    async with broker_with(tmp_path, group, address) as (broker, tool):
        for name in ("G", "H"):
            await tool.heart_beat(name, "T")
        first = asyncio.ensure_future(tool.ask(11, LONG_POLL))
        await pulls_wait(broker, 1)
        assert [(await tool.ask(11, LONG_POLL)).code for _ in range(3)] == [215] * 3
        other = asyncio.ensure_future(tool.ask(11, LONG_POLL | {"consumerGroup": "H"}))
        await pulls_wait(broker, 2)
        assert (await tool.send("T")).code == 0
        assert [(await pull).code for pull in (first, other)] == [0, 0]


async def test_a_place_is_free_again_although_limits_have_changed(tmp_path: Path) -> None:
    quota = Quota(Kind.GROUP, "G", Limits(held_pulls=2))
    async with broker_with(tmp_path, quota) as (broker, tool):
        await tool.heart_beat("G", "T")
        pulls = [asyncio.ensure_future(tool.ask(11, LONG_POLL)) for _ in range(2)]
        await pulls_wait(broker, 2)
        table = broker._access.quotas.table
        table.set_rates(list(Kind).index(Kind.GROUP), b"G", Limits(held_pulls=1).rates)
        assert (await tool.send("T")).code == 0
        assert [(await pull).code for pull in pulls] == [0, 0]
        later = LONG_POLL | {"queueOffset": "1"}
        last = asyncio.ensure_future(tool.ask(11, later))
        await pulls_wait(broker, 1)
        assert (await tool.ask(11, later)).code == 215
        assert (await tool.send("T")).code == 0
        assert (await last).code == 0


async def test_a_name_whose_pulls_wait_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "congreve.broker.quotas.quotas.QuotaTable", partial(QuotaTable, names_max=1)
    )
    everyone = Quota(Kind.GROUP, EVERY_NAME, Limits(held_pulls=1))
    async with broker_with(tmp_path, everyone) as (broker, tool):
        await tool.heart_beat("G", "T")
        first = asyncio.ensure_future(tool.ask(11, LONG_POLL))
        await pulls_wait(broker, 1)
        later = time.monotonic_ns() + 9 * 10**9
        other = charged_names("T", "H", None, bytes(4))
        table = broker._access.quotas.table
        assert table.take_for(other, Use.SENDS, 1, 10, later) == 0
        assert (await tool.ask(11, LONG_POLL)).code == 215
        assert (await tool.send("T")).code == 0
        assert (await first).code == 0


async def test_pulls_of_a_closed_connection_leave_their_places(tmp_path: Path) -> None:
    quota = Quota(Kind.ADDRESS, "127.0.0.1", Limits(held_pulls=1))
    async with broker_with(tmp_path, quota) as (broker, tool):
        await tool.heart_beat("G", "T")
        assert (await tool.send("T")).code == 0
        later = LONG_POLL | {"queueOffset": "1"}
        gone = Tool(broker.address, RemotingClient())
        pull = asyncio.ensure_future(gone.ask(11, later))
        assert broker._paths is not None
        while not broker._paths.waiting()[1]:
            await asyncio.sleep(0.01)
        assert (await tool.ask(11, later)).code == 215
        await gone.client.close()
        await asyncio.gather(pull, return_exceptions=True)
        while broker._paths.waiting()[1]:
            await asyncio.sleep(0.01)
        short = later | {"suspendTimeoutMillis": "50"}
        assert (await tool.ask(11, short)).code == 19


@pytest.mark.parametrize("form", ["{}", "+{}", "00{}"])
async def test_messages_sent_back_have_the_quota_of_their_group(tmp_path: Path, form: str) -> None:
    quota = Quota(Kind.GROUP, "G", Limits(send_bytes=1000))
    async with broker_with(tmp_path, quota) as (broker, tool):
        await tool.heart_beat("G", "T")
        offset = broker.store.log.max_offset
        assert (await tool.send("T", b"x" * 5000)).code == 0
        back = {"group": "G", "offset": form.format(offset), "delayLevel": "1", "originTopic": "T"}
        codes = [(await tool.ask(36, back)).code for _ in range(4)]
        assert codes == [0, BUSY, BUSY, BUSY]
        assert (await tool.ask(36, back | {"offset": "x"})).code == BUSY


async def test_ends_of_transactions_are_charged_and_not_refused(tmp_path: Path) -> None:
    async with broker_with(tmp_path) as (broker, tool):
        for _ in range(12):
            answer = await tool.send_half("T")
            assert answer.code == 0, answer.remark
        halves = [
            (each.queue_offset, each.physical_offset)
            for each in map(broker.managers.transactions.service.half_at, range(12))
            if each is not None
        ]
        QuotaFile(str(tmp_path)).set(Quota(Kind.GROUP, "P", Limits(send_messages=1)))
        await broker._access.quotas.follow()
        for queue_offset, physical_offset in halves * 2:
            ended = await tool.commit_half(queue_offset, physical_offset)
            assert ended.code in (0, 1)  # 1: it has ended before
        assert broker.store.queues.get("T", 0).max == 12
        assert (await tool.send("T")).code == BUSY


async def test_accounts_have_quotas_when_requests_are_signed(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    QuotaFile(str(conf)).set(Quota(Kind.ACCOUNT, "both-of-T", Limits(send_messages=3)))
    async with guarded(tmp_path) as (_, tools):
        await tools.of("administrator").create_topic("T")
        begin = time.monotonic()
        codes = await send_many(tools.of("both-of-T"), "T", 20)
        assert 3 <= codes[0] <= 3 + 3 * (time.monotonic() - begin) + 1
        assert (await send_many(tools.of("pub-of-T"), "T", 20))[0] == 20
        # A wrong signature is refused before it is charged.
        wrong = await tools.of("pub-of-T", SECRET + "x").send("T")
        assert wrong.code == 1


async def test_a_changed_file_takes_effect(tmp_path: Path) -> None:
    async with broker_with(tmp_path) as (broker, tool):
        file = QuotaFile(str(tmp_path))
        file.set(Quota(Kind.TOPIC, EVERY_NAME, Limits(send_messages=1)))
        await broker._access.quotas.follow()
        assert (await send_many(tool, "T", 40))[BUSY] > 0
        file.delete(Kind.TOPIC, EVERY_NAME)
        await broker._access.quotas.follow()
        assert not broker._access.quotas.table
        assert (await send_many(tool, "T", 40))[0] == 40
        file.set(Quota(Kind.TOPIC, "U", Limits(send_messages=1)))
        await broker._access.quotas.follow()
        Path(file.path).write_text("topic: {T: {sendMessages: -1}}")
        await broker._access.quotas.follow()
        assert [quota.name for quota, _ in broker._access.quotas.limited_by_name()] == ["U"]


async def test_defaults_of_broker_conf_change_over_the_network(tmp_path: Path) -> None:
    async with broker_with(tmp_path) as (_, tool):

        async def set_default(text: str) -> RemotingCommand:
            return await tool.ask(25, body=f"defaultTopicQuota={text}".encode())

        assert (await set_default("sendMessages=1")).code == 0
        assert (await send_many(tool, "T", 40))[BUSY] > 0
        assert (await set_default("")).code == 0
        assert (await send_many(tool, "T", 40))[0] == 40
        refused = await set_default("sendMessages=much")
        assert (refused.code, "defaultTopicQuota" in (refused.remark or "")) == (1, True)


@pytest.mark.parametrize(
    "text",
    ["queue: {T: {}}", "topic: [T]", "address: {here: {}}", "topic: {T: {sendMails: 1}}", "[1]"],
)
def test_a_file_that_cannot_be_used_is_an_error(text: str, tmp_path: Path) -> None:
    file = QuotaFile(str(tmp_path))
    Path(file.path).write_text(text)
    with pytest.raises(ConfigError, match=r"quotas\.yml"):
        file.load()


async def test_heartbeats_have_a_quota(tmp_path: Path) -> None:
    quota = Quota(Kind.ADDRESS, "127.0.0.1", Limits(heartbeats=2))
    async with broker_with(tmp_path, quota) as (broker, tool):
        begin = time.monotonic()
        codes = Counter([(await tool.heart_beat("G", "T")).code for _ in range(8)])
        assert 2 <= codes[0] <= 2 + 2 * (time.monotonic() - begin) + 1
        assert codes[0] + codes[BUSY] == 8
        assert broker._access.quotas.limited()[Kind.ADDRESS, Use.HEARTBEATS] == codes[BUSY]
        assert (await send_many(tool, "T", 8))[0] == 8


async def test_metrics_count_what_a_quota_limits(tmp_path: Path) -> None:
    quota = Quota(Kind.TOPIC, "T", Limits(send_bytes=1))
    async with broker_with(tmp_path, quota, metrics_port=0) as (broker, tool):
        assert [(await tool.send("T", b"x" * 1000)).code for _ in range(3)] == [0, 2, 2]
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.config.metrics_port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        assert 'congreve_quota_limited_total{kind="topic",request="sends"} 2' in text
        named = 'congreve_quota_name_limited_total{kind="topic",name="T",request="sends"} 2'
        assert named in text


async def test_refused_senders_delay_others_little(tmp_path: Path) -> None:
    """A flood beyond its quota is read once in REST_S, however fast its client sends again."""
    quota = Quota(Kind.TOPIC, "T", Limits(send_messages=10))
    async with broker_with(tmp_path, quota) as (broker, tool):
        flood = Tool(broker.address, RemotingClient())
        codes: Counter[int] = Counter()
        begin = time.monotonic()

        async def send_again() -> None:
            while not done.is_set():
                codes[(await flood.send("T")).code] += 1

        done = asyncio.Event()
        senders = [asyncio.create_task(send_again()) for _ in range(IN_FLIGHT)]
        assert (await send_many(tool, "U", 300))[0] == 300
        done.set()
        await asyncio.gather(*senders)
        seconds = time.monotonic() - begin
        await flood.client.close()
        assert codes[0] <= 10 + 10 * seconds + 1
        assert 0 < codes[BUSY] <= IN_FLIGHT * (seconds / REST_S + 3)
