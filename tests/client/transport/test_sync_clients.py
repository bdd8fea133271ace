"""Sync clients show the signatures and the docstrings of the asyncio clients."""

import inspect

import pytest

from congreve.client import (
    LitePullConsumer,
    Producer,
    PullConsumer,
    SyncLitePullConsumer,
    SyncProducer,
    SyncPullConsumer,
)


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
