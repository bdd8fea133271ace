"""SyncLiteSubscription, and ReceiveMessage of groups that consume lite topics (RocketMQ 5.5:
ClientActivity, ReceiveMessageActivity)."""

from typing import Any

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.grpc.client_sessions import ClientSessions
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import checked_group, checked_lite_topic, checked_topic
from congreve.broker.grpc.received import Received
from congreve.broker.grpc.renewals import LOST_MS
from congreve.broker.lite.lites import Lites
from congreve.broker.lite.rules import bound_topic, is_parent, is_set
from congreve.broker.lite.starts import (
    Start,
    from_end,
    from_first,
    from_offset,
    from_tail,
    from_time,
)
from congreve.broker.lite.subscriptions import LiteClient, LiteQuotaError
from congreve.broker.lite.taking import LiteAsked, LiteTaken
from congreve.broker.metadata.attributes import LITE_WILDCARD
from congreve.broker.metadata.metadata import Metadata
from congreve.engine.errors import PopFullError
from congreve.records.message.pop_handle import ORDERED_REVIVE_QUEUE_ID, PopHandle, PoppedFrom
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.pop_headers import PopMessageRequestHeader

UNACKED_MAX = 100
"""Messages that one client has and has not acknowledged."""
SET_MORE = 300
"""Lite topics of one request beyond the quota of a client."""
# Numbers of definition.proto.
_PARTIAL_ADD, _PARTIAL_REMOVE, _COMPLETE_ADD, _COMPLETE_REMOVE = 0, 1, 2, 3
_POLICIES: dict[int, Start] = {1: from_first, 2: from_end}


class LiteCalls:
    """Serves the calls of consumers of lite topics (RocketMQ 5.5: LiteSubscriptionService)."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        lites: Lites,
        sessions: ClientSessions,
        clock: Clock,
        protos: Any,
    ) -> None:
        self._config = config
        self._groups = metadata.groups
        self._topics = metadata.topics
        self._lites = lites
        self._sessions = sessions
        self._clock = clock
        self._protos = protos
        self._received = Received(protos)
        lites.subscriptions.evict = sessions.tell_unsubscribed
        sessions.client_gone = lites.subscriptions.remove_all

    # --- subscriptions

    def sync(self, call: GrpcCall, request: Any) -> Any:
        """Answer a SyncLiteSubscriptionRequest. Raises CallRefusedError."""
        topic, group = checked_topic(request.topic), checked_group(request.group)
        config = self._groups.find(group)
        if config is None:
            raise CallRefusedError(Code.ILLEGAL_CONSUMER_GROUP, f"group not found: {group}")
        bound = bound_topic(config)
        if bound != topic:
            known, asked = ("null", topic) if bound is None else (bound, topic)
            why = f"lite group {group} is expected to bind topic {known}, but actual is {asked}"
            raise CallRefusedError(Code.ILLEGAL_TOPIC, why)
        names = list(dict.fromkeys(map(checked_lite_topic, request.lite_topic_set)))
        if is_set(config, LITE_WILDCARD):
            why = f"group {group} has lite.sub.wildcard, which this broker does not serve"
            raise CallRefusedError(Code.NOT_IMPLEMENTED, why)
        self._check(call, config, topic)
        try:
            self._sync(call.client_id, group, topic, names, request)
        except LiteQuotaError as error:
            code = Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
            raise CallRefusedError(code, str(error)) from error
        response = self._protos.SyncLiteSubscriptionResponse()
        response.status.code, response.status.message = Code.OK, "OK"
        return response

    def _sync(self, client_id: str, group: str, topic: str, names: list[str], request: Any) -> None:
        subscriptions = self._lites.subscriptions
        if request.action == _PARTIAL_ADD:
            subscriptions.add(client_id, group, topic, names, _start(request))
        elif request.action == _PARTIAL_REMOVE:
            subscriptions.remove(client_id, group, names)
        elif request.action == _COMPLETE_ADD:
            subscriptions.replace(client_id, group, topic, names)
        elif request.action == _COMPLETE_REMOVE:
            subscriptions.remove_all(client_id)
        else:
            raise CallRefusedError(Code.BAD_REQUEST, f"the action {request.action} is unknown")

    def _check(self, call: GrpcCall, group: SubscriptionGroupConfig, topic: str) -> None:
        if self._config.is_slave:
            raise CallRefusedError(Code.FORBIDDEN, "this broker is a slave: ask its master")
        if not group.consume_enable:
            why = f"Consumer group is not allowed to consume: {group.group_name}"
            raise CallRefusedError(Code.FORBIDDEN, why)
        if not is_parent(self._topics.table.get(topic)):
            why = f"the topic [{topic}] message type not match"
            raise CallRefusedError(Code.ILLEGAL_TOPIC, why)
        if not self._sessions.is_open(call.client_id):
            why = f"The client [{call.client_id}] is disconnected."
            raise CallRefusedError(Code.BAD_REQUEST, why)

    # --- messages

    def is_lite(self, header: PopMessageRequestHeader) -> bool:
        """Whether a request is of a group that consumes lite topics of this topic."""
        return bound_topic(self._groups.table.get(header.consumer_group)) == header.topic

    async def receive(
        self, call: GrpcCall, header: PopMessageRequestHeader, *, auto_renew: bool
    ) -> Any:
        """Answer a ReceiveMessageRequest. Raises CallRefusedError."""
        self._check(call, self._groups.table[header.consumer_group], header.topic)
        client = self._lites.subscriptions.client_of(
            call.client_id, header.consumer_group, header.topic
        )
        held = self._lites.taking.held(client)
        if held > UNACKED_MAX:
            why = f"The client [{call.client_id}] has too many unacked messages: {held}"
            raise CallRefusedError(Code.FORBIDDEN, why)
        asked = LiteAsked(header.max_msg_nums, header.invisible_time, header.attempt_id)
        try:
            taken = await self._lites.taking.receive(client, asked, header.poll_time / 1000)
        except PopFullError as error:
            raise CallRefusedError(Code.TOO_MANY_REQUESTS, str(error)) from error
        if not taken:
            raise CallRefusedError(Code.MESSAGE_NOT_FOUND, "no new message")
        if call.cancelled:
            self._lites.taking.give_back(taken, LOST_MS)
            return self._protos.ReceiveMessageResponse()
        return self._answer(call, client, header, taken, auto_renew)

    def _answer(
        self,
        call: GrpcCall,
        client: LiteClient,
        header: PopMessageRequestHeader,
        taken: list[LiteTaken],
        auto_renew: bool,
    ) -> Any:
        new = self._protos.ReceiveMessageResponse
        first = new()
        first.status.code, first.status.message = Code.OK, "OK"
        call.reply(first.SerializeToString(), last=False)
        handles: dict[str, list[PopHandle]] = {}
        for each in taken:
            handle = self._handle(each, header)
            handles.setdefault(each.window.topic, []).append(handle)
            text = f"{handle.encode()} {each.record.physical_offset}"
            message = self._received.message(each.record, text, each.attempts + 1)
            call.reply(new(message=message).SerializeToString(), last=False)
        if auto_renew:
            for light, of_lite in handles.items():
                self._sessions.renewals.hold(client.client_id, client.group, light, of_lite)
        last = new()
        last.delivery_timestamp.FromMilliseconds(self._clock.now())
        return last

    def _handle(self, taken: LiteTaken, header: PopMessageRequestHeader) -> PopHandle:
        return PopHandle(
            start_offset=taken.record.queue_offset,
            pop_ms=taken.pop_ms,
            invisible_ms=header.invisible_time,
            revive_queue_id=ORDERED_REVIVE_QUEUE_ID,
            kind=PoppedFrom.TOPIC,
            broker_name=self._config.broker_name,
            queue_id=taken.window.queue_id,
            offset=taken.record.queue_offset,
        )


def _start(request: Any) -> Start | None:
    """Where a group begins, as a request says. Raises CallRefusedError."""
    option = request.offset_option
    kind = option.WhichOneof("offset_type") if request.HasField("offset_option") else None
    if kind == "offset":
        return from_offset(option.offset)
    if kind == "tail_n":
        return from_tail(option.tail_n)
    if kind == "timestamp":
        return from_time(option.timestamp)
    if kind == "policy":
        return _POLICIES.get(option.policy)
    return None
