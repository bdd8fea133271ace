"""Producers and consumers for Python programs, sync and asyncio.

Names are imported on first use: importing asyncio alone takes longer than starting a short command
should.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from congreve.client.admin.client import AdminClient
    from congreve.client.admin.sync import SyncAdminClient
    from congreve.client.compression import CompressionType
    from congreve.client.consumer.consumer import PullConsumer, SyncPullConsumer
    from congreve.client.consumer.listening import ConsumeResult, ReconsumeLaterError
    from congreve.client.consumer.lite_pull import LitePullConsumer, SyncLitePullConsumer
    from congreve.client.consumer.push import PushConsumer, SyncPushConsumer
    from congreve.client.hooks import (
        ConsumeContext,
        ConsumeHook,
        ConsumeOutcome,
        ReceiveContext,
        SendContext,
        SendHook,
    )
    from congreve.client.message import (
        Message,
        MessageQueue,
        PullResult,
        PullStatus,
        ReceivedMessage,
    )
    from congreve.client.producer.producer import Producer, by_key
    from congreve.client.producer.sync_producer import SyncProducer, SyncTransactionProducer
    from congreve.client.producer.transaction import (
        TransactionProducer,
        TransactionResult,
        TransactionState,
    )
    from congreve.client.pull.process_queue import FlowLimits
    from congreve.client.results import SendResult, SendStatus
    from congreve.client.settings import ConsumeFrom, ConsumerSettings, MessageModel
    from congreve.client.share.columns import ReceivedColumns
    from congreve.client.share.consumer import ShareConsumer, SyncShareConsumer
    from congreve.client.share.settings import ShareSettings
    from congreve.client.subscription import Sql
    from congreve.remoting.messages.signature import Credentials
    from congreve.remoting.tls.certificates import tls_context

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
    "ReceiveContext",
    "ReceivedColumns",
    "ReceivedMessage",
    "ReconsumeLaterError",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "ShareConsumer",
    "ShareSettings",
    "Sql",
    "SyncAdminClient",
    "SyncLitePullConsumer",
    "SyncProducer",
    "SyncPullConsumer",
    "SyncPushConsumer",
    "SyncShareConsumer",
    "SyncTransactionProducer",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "by_key",
    "tls_context",
]

# Modules in this package; those with a leading dot are in the parent package.
_MODULES = {
    "AdminClient": "admin.client",
    "CompressionType": "compression",
    "ConsumeContext": "hooks",
    "ConsumeFrom": "settings",
    "ConsumeHook": "hooks",
    "ConsumeOutcome": "hooks",
    "ConsumeResult": "consumer.listening",
    "ConsumerSettings": "settings",
    "Credentials": ".remoting.messages.signature",
    "tls_context": ".remoting.tls.certificates",
    "FlowLimits": "pull.process_queue",
    "LitePullConsumer": "consumer.lite_pull",
    "MessageModel": "settings",
    "Producer": "producer.producer",
    "PullConsumer": "consumer.consumer",
    "PushConsumer": "consumer.push",
    "ReconsumeLaterError": "consumer.listening",
    "ReceiveContext": "hooks",
    "ReceivedColumns": "share.columns",
    "SendContext": "hooks",
    "SendHook": "hooks",
    "SendResult": "results",
    "SendStatus": "results",
    "ShareConsumer": "share.consumer",
    "ShareSettings": "share.settings",
    "Sql": "subscription",
    "SyncAdminClient": "admin.sync",
    "SyncLitePullConsumer": "consumer.lite_pull",
    "SyncProducer": "producer.sync_producer",
    "SyncPullConsumer": "consumer.consumer",
    "SyncPushConsumer": "consumer.push",
    "SyncShareConsumer": "share.consumer",
    "SyncTransactionProducer": "producer.sync_producer",
    "TransactionProducer": "producer.transaction",
    "TransactionResult": "producer.transaction",
    "TransactionState": "producer.transaction",
    "by_key": "producer.producer",
}

if not TYPE_CHECKING:  # for which each name would exist

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f".{_MODULES.get(name, 'message')}", __name__)
        value: object = getattr(module, name)
        globals()[name] = value
        return value
