"""Producers and consumers for Python programs, sync and asyncio.

Names are imported when they are first used: asyncio alone takes longer to import than a short
command may take to start.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from congreve.client.admin import AdminClient
    from congreve.client.consumer import PullConsumer, SyncPullConsumer
    from congreve.client.message import (
        Message,
        MessageQueue,
        PullResult,
        PullStatus,
        ReceivedMessage,
        SendResult,
        SendStatus,
    )
    from congreve.client.producer import Producer, SyncProducer, by_key
    from congreve.client.push import ConsumeFrom, PushConsumer

__all__ = [
    "AdminClient",
    "ConsumeFrom",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "SyncProducer",
    "SyncPullConsumer",
    "by_key",
]

_MODULES = {
    "AdminClient": "admin",
    "ConsumeFrom": "push",
    "Producer": "producer",
    "PullConsumer": "consumer",
    "PushConsumer": "push",
    "SyncProducer": "producer",
    "SyncPullConsumer": "consumer",
    "by_key": "producer",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'message')}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value
