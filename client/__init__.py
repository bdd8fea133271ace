"""Producers and consumers for Python programs, sync and asyncio.

Names are imported when they are first used: asyncio alone takes longer to import than a short
command may take to start.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from congreve.client.acl import Credentials
    from congreve.client.admin import AdminClient
    from congreve.client.compression import CompressionType
    from congreve.client.consumer import PullConsumer, SyncPullConsumer
    from congreve.client.hooks import (
        ConsumeContext,
        ConsumeHook,
        ConsumeOutcome,
        SendContext,
        SendHook,
    )
    from congreve.client.listening import ConsumeResult, ReconsumeLaterError
    from congreve.client.litepull import LitePullConsumer, SyncLitePullConsumer
    from congreve.client.message import (
        Message,
        MessageQueue,
        PullResult,
        PullStatus,
        ReceivedMessage,
        SendResult,
        SendStatus,
    )
    from congreve.client.processqueue import FlowLimits
    from congreve.client.producer import Producer, by_key
    from congreve.client.push import PushConsumer, SyncPushConsumer
    from congreve.client.settings import ConsumeFrom, ConsumerSettings, MessageModel
    from congreve.client.subscription import Sql
    from congreve.client.syncproducer import SyncProducer, SyncTransactionProducer
    from congreve.client.transaction import (
        TransactionProducer,
        TransactionResult,
        TransactionState,
    )

__all__ = [
    "AdminClient",
    "CompressionType",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeHook",
    "ConsumeOutcome",
    "ConsumeResult",
    "ConsumerSettings",
    "Credentials",
    "FlowLimits",
    "LitePullConsumer",
    "Message",
    "MessageModel",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "ReconsumeLaterError",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "Sql",
    "SyncLitePullConsumer",
    "SyncProducer",
    "SyncPullConsumer",
    "SyncPushConsumer",
    "SyncTransactionProducer",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "by_key",
]

_MODULES = {
    "AdminClient": "admin",
    "CompressionType": "compression",
    "ConsumeContext": "hooks",
    "ConsumeFrom": "settings",
    "ConsumeHook": "hooks",
    "ConsumeOutcome": "hooks",
    "ConsumeResult": "listening",
    "ConsumerSettings": "settings",
    "Credentials": "acl",
    "FlowLimits": "processqueue",
    "LitePullConsumer": "litepull",
    "MessageModel": "settings",
    "Producer": "producer",
    "PullConsumer": "consumer",
    "PushConsumer": "push",
    "ReconsumeLaterError": "listening",
    "SendContext": "hooks",
    "SendHook": "hooks",
    "Sql": "subscription",
    "SyncLitePullConsumer": "litepull",
    "SyncProducer": "syncproducer",
    "SyncPullConsumer": "consumer",
    "SyncPushConsumer": "push",
    "SyncTransactionProducer": "syncproducer",
    "TransactionProducer": "transaction",
    "TransactionResult": "transaction",
    "TransactionState": "transaction",
    "by_key": "producer",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'message')}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value
