"""The codecs of the lanes: which calls are ordinary."""

from congreve.base.clock import Clock
from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.config import BrokerConfig
from congreve.broker.grpc.client_settings import is_fifo
from congreve.broker.grpc.codecs.call_accounts import CallAccounts
from congreve.broker.grpc.codecs.codec import GrpcCodec
from congreve.broker.grpc.codecs.hashed_names import HashedNames
from congreve.broker.grpc.codecs.messages import ReceivedMessages
from congreve.broker.grpc.codecs.receives import ReceiveCodec
from congreve.broker.grpc.received import HIDDEN
from congreve.broker.grpc.renewals import RENEWED_MS
from congreve.broker.lite.rules import bound_topic
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.records.message.properties import RESERVED_BY_GRPC
from congreve.records.message.topics import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    COMMAND_GROUP,
    SYSTEM_GROUPS,
    SYSTEM_TOPICS,
)
from congreve.remoting.signatures.md5 import load_md5


class LaneCodecs:
    """Makes the codec of each lane, and tells all of them which groups need messages in order, as
    those of lite topics do.

    `control` is None without accounts. (RocketMQ 5: GrpcMessagingApplication.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        clock: Clock,
        control: AccessControl | None,
    ) -> None:
        self._config = config
        self._groups = groups
        self._clock = clock
        self._control = control
        self._reserved = HashedNames(
            (*RESERVED_BY_GRPC, *SYSTEM_TOPICS, *SYSTEM_GROUPS, COMMAND_GROUP)
        )
        self._ordered = HashedNames()
        for name in groups.table:
            self._group_changed(name)
        groups.listen(self._group_changed)

    def new(self) -> GrpcCodec:
        """The codec of one lane."""
        accounts = None if self._control is None else CallAccounts(self._control.table)
        return GrpcCodec(
            self._reserved,
            template=AUTO_CREATE_TOPIC_KEY_TOPIC,
            max_body_size=self._config.store.max_message_size,
            accounts=accounts,
            receives=self._receives(accounts),
        )

    def _receives(self, accounts: CallAccounts | None) -> ReceiveCodec | None:
        md5 = load_md5()
        if md5 is None:
            return None
        return ReceiveCodec(
            self._reserved,
            self._ordered,
            ReceivedMessages(md5, self._config.broker_name, HIDDEN),
            self._clock,
            renewed_ms=RENEWED_MS,
            accounts=accounts,
        )

    def _group_changed(self, name: str) -> None:
        group = self._groups.table.get(name)
        if is_fifo(group) or bound_topic(group) is not None:
            self._ordered.add(name)
