"""Sync clients show the signatures and the docstrings of the asyncio clients."""

import inspect
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from congreve.client import (
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    SendResult,
    SyncLitePullConsumer,
    SyncProducer,
    SyncPullConsumer,
)
from congreve.client.errors import ClientStateError


@pytest.mark.parametrize(
    ("sync", "client"),
    [
        (SyncProducer, Producer),
        (SyncPullConsumer, PullConsumer),
        (SyncLitePullConsumer, LitePullConsumer),
    ],
)
def test_a_sync_client_shows_the_arguments_of_its_client(sync: type, client: type) -> None:
    names = [name for name in vars(sync) if not name.startswith("_") and name != "send_soon"]
    assert names
    for name in names:
        ours, theirs = getattr(sync, name), getattr(client, name)
        assert inspect.signature(ours) == inspect.signature(theirs), name
        assert inspect.getdoc(ours), name


def test_a_second_start_leaves_the_client_as_it_was() -> None:
    async def answer() -> int:
        return 5

    with SyncPullConsumer("127.0.0.1:1", group="g") as consumer:
        with pytest.raises(ClientStateError, match="only once"):
            consumer.start()
        assert consumer._thread.run(answer()) == 5


def test_an_interrupt_behind_the_start_stops_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    start = SyncProducer.start

    def interrupted(producer: SyncProducer) -> None:
        start(producer)
        raise KeyboardInterrupt

    monkeypatch.setattr(SyncProducer, "start", interrupted)
    producer = SyncProducer("127.0.0.1:1", group="p")
    with pytest.raises(KeyboardInterrupt), producer:
        raise AssertionError("its body does not run")
    assert not producer._thread.is_running


def test_several_threads_stop_a_client() -> None:
    for _ in range(5):
        producer = SyncProducer("127.0.0.1:1", group="p")
        producer.start()
        with ThreadPoolExecutor(6) as threads:
            for stopped in [threads.submit(producer.stop) for _ in range(6)]:
                assert stopped.result(60) is None


def test_a_callback_learns_that_it_cannot_wait() -> None:
    refused: Future[list[str]] = Future()
    message = Message(topic="T", body=b"x")

    def callback(sent: Future[SendResult]) -> None:
        texts = []
        for call in (producer.stop, lambda: producer.send_batch([message])):
            try:
                call()
            except ClientStateError as error:
                texts.append(str(error))
        refused.set_result(texts)

    with SyncProducer("127.0.0.1:1", group="p", send_timeout_s=0.1) as producer:
        producer.send_soon(message, callback)
        texts = refused.result(60)
    assert len(texts) == 2
    assert all("another thread, or use send_soon()" in text for text in texts)
