"""A broker with aclReplayWindowMills accepts each request once and refuses copies of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.broker.accounts import replays
from congreve.broker.accounts.errors import AccessDeniedError
from congreve.broker.accounts.replays import NUMBERS_KEPT, ReplayGuard
from congreve.client import Credentials, Message, Producer, PushConsumer
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ANTI_REPLAY, Numbered, RequestNumbers
from congreve.remoting.transport.client import RemotingClient

from ..guarded import SECRET, guarded
from ..tool import Tool

NOW = 1_700_000_000_000
WINDOW = 1_000


def request(text: str) -> RemotingCommand:
    return RemotingCommand(code=1, ext_fields={ANTI_REPLAY: text})


@contextmanager
def refused(why: str) -> Iterator[None]:
    with pytest.raises(AccessDeniedError, match=why):
        yield


@given(st.lists(st.integers(1, 3 * NUMBERS_KEPT), max_size=60))
def test_each_number_passes_once_and_late_ones_pass_up_to_a_limit(numbers: list[int]) -> None:
    guard = ReplayGuard(WINDOW, ManualClock(NOW))
    passed: set[int] = set()
    for number in numbers:
        try:
            guard.check("key", request(f"{NOW}/series/{number}"))
        except AccessDeniedError:
            assert number in passed or number <= max(passed) - NUMBERS_KEPT
        else:
            assert number not in passed
            passed.add(number)


def test_series_and_accounts_have_numbers_of_their_own() -> None:
    guard = ReplayGuard(WINDOW, ManualClock(NOW))
    for key, series in (("a", "x"), ("a", "y"), ("b", "x")):
        guard.check(key, request(f"{NOW}/{series}/1"))
        with refused("came before"):
            guard.check(key, request(f"{NOW}/{series}/1"))


def test_a_request_must_be_recent_and_of_this_run() -> None:
    clock = ManualClock(NOW)
    guard = ReplayGuard(WINDOW, clock)
    with refused("runs since"):
        guard.check("key", request(f"{NOW - 1}/old/1"))
    clock.set(NOW + 5 * WINDOW)
    for wrong in (4 * WINDOW - 1, 6 * WINDOW + 1):
        with refused("clocks"):
            guard.check("key", request(f"{NOW + wrong}/series/1"))
    guard.check("key", request(f"{NOW + 4 * WINDOW}/series/1"))


@pytest.mark.parametrize("text", ["", "1", "1/2", "x/s/1", "1//1", "1/s/", "1/s/-1", "1/s/1/1"])
def test_a_request_without_a_number_is_refused(text: str) -> None:
    assert Numbered.parse(text) is None
    with refused("replay_protection"):
        ReplayGuard(WINDOW, ManualClock(NOW)).check("key", request(text))


def test_series_are_forgotten_when_none_of_their_requests_can_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replays, "SERIES_MAX", 3)
    clock = ManualClock(NOW)
    guard = ReplayGuard(WINDOW, clock)
    for number in range(3):
        guard.check("key", request(f"{NOW}/s{number}/1"))
    with refused("try again later"):
        guard.check("key", request(f"{NOW}/s3/1"))
    clock.set(NOW + 2 * WINDOW + 1)
    guard.check("key", request(f"{clock.now()}/s3/1"))
    with refused("clocks"):
        guard.check("key", request(f"{NOW}/s0/1"))


def test_a_client_counts_its_requests() -> None:
    numbers = RequestNumbers(lambda: NOW)
    first, second = Numbered.parse(numbers.next()), Numbered.parse(numbers.next())
    assert first is not None and second is not None
    assert (first.time, first.number, second.number) == (NOW, 1, 2)
    assert first.series == second.series != Numbered.parse(RequestNumbers().next())


async def test_a_copy_of_a_request_is_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path, acl_replay_window_mills=60_000) as (broker, tools):
        taken: list[RemotingCommand] = []
        signer = Credentials(
            access_key="administrator", secret_key=SECRET, replay_protection=True
        ).signer()

        def sign(command: RemotingCommand) -> None:
            signer(command)
            taken.append(command)

        clients = RemotingClient(before_request=sign), RemotingClient()
        tool = Tool(tools.address, clients[0])
        assert (await tool.create_topic("T")).code == 0
        assert (await tool.send("T")).code == 0
        for original in taken:
            copy = RemotingCommand(code=original.code, ext_fields=original.ext_fields)
            copy.body = original.body
            answer = await clients[1].invoke(tools.address, copy)
            assert (answer.code, "came before" in (answer.remark or "")) == (1, True)
        assert broker.store.queues.get("T", 0).max == 1
        # Clients that do not number their requests, as RocketMQ's, are refused.
        assert "replay_protection" in ((await tools.of("both-of-T").send("T")).remark or "")
        for client in clients:
            await client.close()


async def test_our_clients_work_with_and_without_a_broker_that_requires_numbers(
    tmp_path: Path,
) -> None:
    who = Credentials(access_key="both-of-T", secret_key=SECRET, replay_protection=True)
    for window in (0, 60_000):
        folder = tmp_path / str(window)
        folder.mkdir()
        settings = {"acl_replay_window_mills": window, "acl_open_name_servers": True}
        async with (
            NameServer(port=0) as names,
            guarded(folder, namesrv_addr=names.address, **settings) as (
                _,
                tools,
            ),
        ):
            admin = Credentials(
                access_key="administrator", secret_key=SECRET, replay_protection=True
            ).signer()
            client = RemotingClient(before_request=admin)
            assert (await Tool(tools.address, client).create_topic("T")).code == 0
            await client.close()
            async with (
                Producer(names.address, group="P", credentials=who) as producer,
                PushConsumer(
                    names.address, group="G", topics={"T": "*"}, credentials=who
                ) as consumer,
            ):
                for number in range(3):
                    await producer.send(Message(topic="T", body=b"%d" % number))
                seen = set()
                async for message in consumer:
                    seen.add(message.body)
                    if len(seen) == 3:
                        break
