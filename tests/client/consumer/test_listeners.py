"""Listeners: their messages and the effects of their results, in threads and in the event loop."""

import asyncio
import contextvars
import threading
from collections.abc import Callable

import msgspec
import pytest
from harness.eventually import eventually
from harness.fake_cluster import record, refused, stored
from harness.fake_group import LOCK, QUICK, SEND, SEND_BACK, UNLOCK, Group, member
from prometheus_client import CollectorRegistry

from congreve.client import (
    ConsumeResult,
    ConsumerSettings,
    FlowLimits,
    MessageModel,
    PushConsumer,
    ReceivedMessage,
    ReconsumeLaterError,
)
from congreve.client.errors import ClientStateError, InvalidSettingError
from congreve.client.observability.metrics import PrometheusConsumerMetrics
from congreve.remoting.messages.command import RemotingCommand


class Seen:
    """A listener that records its messages, and returns the result of `then`."""

    def __init__(self, then: Callable[[ReceivedMessage], ConsumeResult | None] | None = None):
        self.offsets: list[int] = []
        self.threads: set[str] = set()
        self._then = then or (lambda message: None)

    def work(self, message: ReceivedMessage) -> ConsumeResult | None:
        self.offsets.append(message.queue_offset)
        self.threads.add(threading.current_thread().name)
        return self._then(message)

    async def work_async(self, message: ReceivedMessage) -> ConsumeResult | None:
        await asyncio.sleep(0)
        return self.work(message)


class OfALibrary(BaseException):
    """As gevent.Timeout, or the outcomes of pytest: no Exception."""


@pytest.mark.parametrize("way", ["work", "work_async"])
@pytest.mark.parametrize("orderly", [False, True])
async def test_each_message_is_delivered_once_and_committed(way: str, orderly: bool) -> None:
    group, seen = Group(), Seen()
    group.fill(0, range(500))
    async with member(group, listener=getattr(seen, way), orderly=orderly):
        await eventually(lambda: len(seen.offsets) == 500)
    assert sorted(seen.offsets) == list(range(500))
    assert group.committed[0] == 500
    in_threads = any(name.startswith("congreve-listener") for name in seen.threads)
    assert in_threads == (way == "work")


async def test_slow_listeners_run_concurrently() -> None:
    group, at_work, most = Group(), 0, 0

    async def listener(message: ReceivedMessage) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.002)
        at_work -= 1

    group.fill(0, range(200))
    async with member(group, listener=listener, settings=ConsumerSettings(concurrency=7)):
        await eventually(lambda: most == 7)
    assert most == 7


@pytest.mark.parametrize(
    ("wish", "level"),
    [("raise", "0"), ("return", "0"), ("level", "4")],
)
async def test_a_failed_message_is_sent_back_and_counts_as_done(wish: str, level: str) -> None:
    def then(message: ReceivedMessage) -> ConsumeResult | None:
        if message.queue_offset != 3:
            return None
        if wish == "raise":
            raise RuntimeError("work failed")
        if wish == "level":
            raise ReconsumeLaterError(4)
        return ConsumeResult.LATER

    group, seen = Group(), Seen(then)
    group.fill(0, range(6))
    async with member(group, listener=seen.work):
        await eventually(lambda: len(seen.offsets) == 6 and bool(group.asked(SEND_BACK)))
    (request,) = group.asked(SEND_BACK)
    assert request.ext_fields["offset"] == "1003"
    assert request.ext_fields["delayLevel"] == level
    assert group.committed[0] == 6


async def test_a_message_that_cannot_be_sent_back_is_sent_again_or_redelivered_locally() -> None:
    def then(message: ReceivedMessage) -> None:
        raise RuntimeError("work failed")

    group, seen = Group(), Seen(then)
    kept: list[RemotingCommand] = []

    def keep(request: RemotingCommand) -> RemotingCommand:
        kept.append(request)
        return stored(request)

    group.answers[SEND_BACK] = refused(1)
    group.answers[SEND] = refused(1)
    group.fill(0, range(1))
    async with member(group, listener=seen.work):
        await eventually(lambda: len(seen.offsets) >= 2)
        assert group.committed.get(0, 0) == 0
        group.answers[SEND] = keep
        await eventually(lambda: bool(kept))
    (request,) = kept
    fields = request.ext_fields
    assert fields["b"] == "%RETRY%cg"
    assert "RETRY_TOPIC\x01T" in fields["i"]
    assert "DELAY\x013" in fields["i"]
    assert (fields["j"], fields["l"]) == ("1", "16")
    assert group.committed[0] == 1


async def test_a_committed_message_that_is_sent_again_is_not_a_half_message() -> None:
    """No producer would end it, so it would be lost. The Java client removes TRAN_MSG, too."""

    def then(message: ReceivedMessage) -> None:
        raise RuntimeError("work failed")

    group, seen = Group(), Seen(then)
    group.answers[SEND_BACK] = refused(1)
    group.answers[SEND] = stored
    extra = b"TRAN_MSG\x01true\x02PGROUP\x01p\x02mine\x011\x02"
    group.records[0] = [record(0, extra_properties=extra)]
    async with member(group, listener=seen.work):
        await eventually(lambda: bool(group.asked(SEND)))
    properties = group.asked(SEND)[0].ext_fields["i"]
    assert "mine\x011" in properties and "PGROUP\x01p" in properties
    assert "TRAN_MSG" not in properties


async def test_a_stop_waits_for_listeners_and_commits_their_messages() -> None:
    group, began = Group(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        began.set()
        await asyncio.sleep(0.05)

    group.fill(0, range(1))
    async with member(group, listener=listener):
        await began.wait()
    assert group.committed[0] == 1


async def test_the_message_of_a_listener_that_does_not_return_is_not_committed() -> None:
    group, began = Group(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        began.set()
        await asyncio.Event().wait()

    group.fill(0, range(1))
    async with member(group, listener=listener, settings=ConsumerSettings(stop_wait_s=0.01)):
        await began.wait()
    assert group.committed.get(0, 0) == 0


async def test_the_message_of_a_listener_that_takes_too_long_is_sent_back() -> None:
    group, stuck = Group(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        await stuck.wait()

    group.fill(0, range(1))
    settings = msgspec.structs.replace(QUICK, consume_timeout_s=0.02, stop_wait_s=0.01)
    async with member(group, listener=listener, settings=settings):
        await eventually(lambda: group.committed.get(0) == 1)
        assert group.asked(SEND_BACK)[0].ext_fields["delayLevel"] == "3"


async def test_batches_hold_no_more_messages_than_requested() -> None:
    group, sizes = Group(), list[int]()

    async def listener(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    group.fill(0, range(100))
    settings = ConsumerSettings(consume_batch=8)
    async with member(group, batch_listener=listener, settings=settings):
        await eventually(lambda: sum(sizes) == 100)
    assert max(sizes) == 8
    assert group.committed[0] == 100


@pytest.mark.parametrize("orderly", [False, True])
async def test_only_the_named_messages_of_a_batch_are_redelivered(orderly: bool) -> None:
    group, came = Group(), list[int]()

    async def listener(messages: list[ReceivedMessage]) -> None:
        first_time = not came
        came.extend(message.queue_offset for message in messages)
        if first_time:
            raise ReconsumeLaterError(2, messages[2:])

    group.fill(0, range(4))
    settings = ConsumerSettings(consume_batch=4, suspend_s=0.01)
    async with member(group, batch_listener=listener, orderly=orderly, settings=settings):
        await eventually(lambda: group.committed.get(0) == 4 or len(came) == 6 or sent_back(group))
    assert came == [0, 1, 2, 3, *((2, 3) if orderly else ())]
    assert [each.ext_fields["offset"] for each in group.asked(SEND_BACK)] == (
        [] if orderly else ["1002", "1003"]
    )
    assert group.committed[0] == 4


def sent_back(group: Group) -> bool:
    return len(group.asked(SEND_BACK)) == 2


async def test_topic_limits_are_divided_when_queues_are_assigned() -> None:
    group, go_on = Group(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        await go_on.wait()

    group.fill(0, range(500))
    settings = ConsumerSettings(limits=FlowLimits(count=None, span=None, topic_count=128))
    async with member(group, listener=listener, settings=settings) as consumer:
        (queue,) = (each for each in consumer.process_queues.values() if len(each))
        await eventually(lambda: len(queue) >= 64)
        await asyncio.sleep(0.05)
        assert len(queue) <= 64 + 2 * settings.pull_count
        go_on.set()
        await eventually(lambda: queue.commit_offset == 500)


async def test_listeners_see_the_context_variables_of_the_starting_task() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    variable.set("mine")
    for way in ("work", "work_async"):
        found: list[str] = []

        def then(message: ReceivedMessage, found: list[str] = found) -> None:
            found.append(variable.get())

        group = Group()
        group.fill(0, range(1))
        async with member(group, listener=getattr(Seen(then), way)):
            await eventually(lambda found=found: bool(found))  # type: ignore[misc]
        assert found == ["mine"]


async def test_an_orderly_queue_waits_for_the_message_that_failed() -> None:
    failures = 3

    def then(message: ReceivedMessage) -> ConsumeResult | None:
        nonlocal failures
        if message.queue_offset == 5 and failures:
            failures -= 1
            return ConsumeResult.LATER
        return None

    group, seen = Group(), Seen(then)
    group.fill(0, range(10))
    async with member(group, listener=seen.work_async, orderly=True):
        await eventually(lambda: len(seen.offsets) == 13)
    assert seen.offsets == [0, 1, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8, 9]
    assert not group.asked(SEND_BACK)
    assert group.committed[0] == 10


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("way", ["work", "work_async"])
@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        GeneratorExit(),
        SystemExit(3),
        KeyError(),
        OfALibrary(),
        BaseExceptionGroup("of a task group", [SystemExit(3), ValueError()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_listener_raises_is_a_failure_of_its_message(
    error: BaseException, way: str, orderly: bool
) -> None:
    """Java catches Throwable around a listener."""
    failed: set[int] = set()

    def raise_once(message: ReceivedMessage) -> None:
        if message.queue_offset < 10 and message.queue_offset not in failed:
            failed.add(message.queue_offset)
            raise error

    group, seen = Group(), Seen(raise_once)
    group.fill(0, range(20))
    settings = msgspec.structs.replace(QUICK, concurrency=2, commit_s=0.1)
    async with member(group, listener=getattr(seen, way), orderly=orderly, settings=settings):
        await eventually(lambda: set(seen.offsets) == set(range(20)))
        await eventually(lambda: group.committed.get(0) == 20)
    assert len(failed) == 10


async def test_an_orderly_message_that_fails_too_often_goes_to_the_retry_topic() -> None:
    attempts: list[int] = []

    def then(message: ReceivedMessage) -> ConsumeResult | None:
        if message.queue_offset != 1:
            return None
        attempts.append(message.reconsume_times)
        return ConsumeResult.LATER

    group, seen = Group(), Seen(then)
    group.answers[SEND] = stored
    group.fill(0, range(3))
    settings = ConsumerSettings(max_reconsume_times=2, suspend_s=0.01)
    async with member(group, listener=seen.work, orderly=True, settings=settings):
        await eventually(lambda: 2 in seen.offsets)
    assert seen.offsets == [0, 1, 1, 1, 2]
    assert attempts == [0, 1, 2]
    [copy] = group.asked(SEND)
    # The broker makes a dead letter of it at once: it was retried as often as allowed.
    assert (copy.ext_fields["b"], copy.ext_fields["j"], copy.ext_fields["l"]) == (
        *("%RETRY%cg", "2", "2"),
    )
    assert group.committed[0] == 3


async def test_all_of_an_orderly_batch_have_had_the_attempt() -> None:
    """As ConsumeMessageOrderlyService.checkReconsumeTimes: the listener has seen each of them."""
    calls: list[list[int]] = []

    def work(messages: list[ReceivedMessage]) -> ConsumeResult | None:
        calls.append([message.queue_offset for message in messages])
        return ConsumeResult.LATER if messages[0].queue_offset < 3 else None

    group = Group()
    group.answers[SEND] = stored
    group.fill(0, range(6))
    settings = ConsumerSettings(max_reconsume_times=2, suspend_s=0.01, consume_batch=3)
    async with member(group, batch_listener=work, orderly=True, settings=settings):
        await eventually(lambda: group.committed.get(0) == 6)
    assert calls == [[0, 1, 2]] * 3 + [[3, 4, 5]]
    assert len(group.asked(SEND)) == 3


async def test_an_orderly_listener_may_give_a_message_up_at_once() -> None:
    def then(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            raise ReconsumeLaterError(-1)

    group, seen = Group(), Seen(then)
    group.answers[SEND] = stored
    group.fill(0, range(3))
    settings = ConsumerSettings(max_reconsume_times=5, suspend_s=0.01)
    async with member(group, listener=seen.work, orderly=True, settings=settings):
        await eventually(lambda: 2 in seen.offsets)
    assert seen.offsets == [0, 1, 2]
    [copy] = group.asked(SEND)
    assert (copy.ext_fields["j"], copy.ext_fields["l"]) == ("5", "5")


async def test_orderly_queues_are_locked_before_use_and_unlocked_at_the_end() -> None:
    group, seen = Group(), Seen()
    group.fill(0, range(2))
    grant = group.answers.pop(LOCK)

    def nothing(request: RemotingCommand) -> RemotingCommand:
        return request.reply(0, body=b'{"lockOKMQSet":[]}')

    group.answers[LOCK] = nothing
    settings = ConsumerSettings(rebalance_s=0.02)
    async with member(group, listener=seen.work, orderly=True, settings=settings) as consumer:
        await eventually(lambda: len(group.asked(LOCK)) > 2)
        assert consumer.assigned == []
        group.answers[LOCK] = grant
        await eventually(lambda: len(seen.offsets) == 2)
    assert group.asked(UNLOCK)


async def test_a_failed_message_of_a_broadcasting_consumer_is_dropped(tmp_path: object) -> None:
    group, seen = Group(), Seen(lambda message: ConsumeResult.LATER)
    group.fill(0, range(3))
    group.fill(1, range(2))
    group.others = ["000-takes-all-in-clustering"]
    async with member(
        group, listener=seen.work, model=MessageModel.BROADCASTING, local_offsets=tmp_path
    ) as consumer:
        await eventually(lambda: len(seen.offsets) == 5)
        assert len(consumer.assigned) == 2
    assert not group.asked(SEND_BACK)
    assert group.committed == {}


async def test_prometheus_counts_pulled_and_consumed_messages() -> None:
    registry, group = CollectorRegistry(), Group()
    seen = Seen(lambda message: ConsumeResult.LATER if message.queue_offset == 2 else None)
    group.fill(0, range(5))
    metrics = PrometheusConsumerMetrics(registry)
    async with member(group, listener=seen.work, metrics=metrics):
        await eventually(lambda: len(seen.offsets) == 5)

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"congreve_client_{name}", {"topic": "T", **labels})

    assert sample("pulled_messages_total") == 5
    assert sample("consumed_messages_total", outcome="ok") == 4
    assert sample("consumed_messages_total", outcome="failed") == 1
    assert sample("pull_seconds_count") == 1


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ClientStateError, match="needs a listener"):
        PushConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, orderly=True)
    with pytest.raises(ClientStateError, match="one listener"):
        PushConsumer(
            "127.0.0.1:1", group="g", topics={"T": "*"}, listener=print, batch_listener=print
        )
    for name, value in {
        "pull_count": 0,
        "concurrency": 0,
        "consume_batch": 5000,
        "commit_s": -1.0,
        "suspend_s": float("nan"),
    }.items():
        with pytest.raises(InvalidSettingError, match=name):
            ConsumerSettings(**{name: value})  # type: ignore[arg-type]
    assert QUICK.attempts(orderly=False) == 16
