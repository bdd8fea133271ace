"""Producers and consumers for Python programs, sync and asyncio."""

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
