"""A member of a group to which brokers hand out messages (RocketMQ 5: RebalancePushImpl of a group
whose broker balances)."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Unpack

from congreve.base.errors import CongreveError
from congreve.client.checks import check_type
from congreve.client.consumer.consume_stats import ConsumerMetrics, ConsumeStats
from congreve.client.consumer.filter_check import check_filters
from congreve.client.consumer.group_client import ConsumerOptions, GroupClient
from congreve.client.consumer.running_info import answer_running_info
from congreve.client.errors import InvalidSettingError, InvalidSubscriptionError
from congreve.client.message import MessageQueue
from congreve.client.namespace import wrap
from congreve.client.settings import ConsumeFrom
from congreve.client.share.settings import ShareSettings
from congreve.client.share.targets import Targets
from congreve.client.subscription import Sql, subscribe
from congreve.remoting.messages.admin_bodies import ConsumerRunningInfo
from congreve.remoting.messages.bodies import ConsumerData
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler


class ShareOptions(ConsumerOptions, total=False):
    """Options of a share consumer; see ShareConsumer (RocketMQ 5: fields of
    DefaultMQPushConsumer)."""

    consume_from: ConsumeFrom
    orderly: bool
    settings: ShareSettings | None
    metrics: ConsumerMetrics | None


class ShareMember(GroupClient):
    """Base class of the share consumer: joins the group and knows which queues to ask.

    (RocketMQ 5: RebalancePushImpl.)
    """

    consume_type = "CONSUME_PASSIVELY"
    model = "CLUSTERING"

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql],
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        orderly: bool = False,
        settings: ShareSettings | None = None,
        metrics: ConsumerMetrics | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        check_type("topics", topics, Mapping)
        check_type("settings", settings, ShareSettings, NoneType)
        check_type("consume_from", consume_from, ConsumeFrom)
        check_type("orderly", orderly, bool)
        if consume_from is ConsumeFrom.TIMESTAMP:
            raise InvalidSettingError(
                f"consume_from is {consume_from!r}: a share consumer begins at the first or the"
                " last offset"
            )
        if not topics:
            raise InvalidSubscriptionError(f"consumer of group {group} has no topics to read")
        super().__init__(namesrv, group=group, **options)
        self.settings = settings or ShareSettings()
        self.consume_from = consume_from
        self.orderly = orderly
        self.stats = ConsumeStats(metrics)
        names = {wrap(self.namespace, topic): wanted for topic, wanted in topics.items()}
        self.subscriptions = {topic: subscribe(topic, wanted) for topic, wanted in names.items()}
        self.version_ms = int(time.time() * 1000)
        self._running_info: Callable[[], ConsumerRunningInfo] = ConsumerRunningInfo
        self._targets = Targets(self, list(self.subscriptions))
        self._look_again = asyncio.Event()
        self._registered: set[str] = set()

    async def start(self) -> None:
        """Join the group; its topics may be created later. Raises NoNameServerError when no name
        server answers, InvalidSubscriptionError when a broker refuses a filter."""
        await super().start()
        try:
            await check_filters(self, self.subscriptions.values(), self.version_ms)
            await self._find_queues()
        except BaseException:
            await self.stop()
            raise
        self._begin_task("the search for queues", self._keep_queues)

    @property
    def queues(self) -> Sequence[MessageQueue]:
        """Those that it pops; id -1 stands for all queues of a broker."""
        return self._targets.queues

    async def _keep_queues(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.rebalance_s):
                    await self._look_again.wait()
            self._look_again.clear()
            await self._find_queues()

    async def _find_queues(self) -> None:
        for topic in self.subscriptions:
            with suppress(CongreveError):
                await self.routes.find(topic)
        brokers = self.routes.addresses(masters_only=False)
        if brokers != self._registered:
            # A broker assigns queues to members only.
            await self.heartbeat()
            self._registered = brokers
        if await self._targets.refresh():
            self._queues_changed()

    def _queues_changed(self) -> None:
        """Hook for subclasses: `_targets` has other queues."""

    async def _refresh_routes(self) -> None:
        if await self.routes.refresh():
            self._look_again.set()

    def _handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._describe,
        }

    def _describe(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return answer_running_info(request, self.group, self._running_info)

    def _members_changed(self, request: RemotingCommand, connection: Connection) -> None:
        self._look_again.set()

    def _consumer_data(self) -> list[ConsumerData]:
        return [
            ConsumerData(
                group_name=self.group,
                consume_type=self.consume_type,
                message_model=self.model,
                consume_from_where=self.consume_from.value,
                subscription_data_set=[
                    each.data(self.version_ms) for each in self.subscriptions.values()
                ],
            )
        ]
