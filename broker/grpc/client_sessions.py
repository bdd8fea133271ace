"""Telemetry, heartbeats and ends of clients (RocketMQ 5: ClientActivity)."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from congreve.base.clock import Clock
from congreve.base.limited_log import LimitedLog
from congreve.base.table_limit import TableFullError
from congreve.broker.config import BrokerConfig
from congreve.broker.group.clients import ClientChannel
from congreve.broker.group.members import Members
from congreve.broker.grpc.access import settings_needs
from congreve.broker.grpc.client_channel import GrpcClientChannel
from congreve.broker.grpc.client_settings import ClientSettings
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import Admits, GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import checked_group
from congreve.broker.grpc.renewals import RETURN_MS, Renewals
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.broker.pop.service import Pops
from congreve.records.filter.kinds import ALL, SQL92, TAG, split_tags
from congreve.records.record import string_hash
from congreve.remoting.lanes.call import CallField, GrpcStatus
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.bodies import ConsumerData
from congreve.remoting.messages.codes import VERSION, LanguageCode

logger = logging.getLogger(__name__)

# Numbers of definition.proto.
_PRODUCER, _PUSH_CONSUMER, _LITE_PUSH_CONSUMER = 1, 2, 5
_SQL = 2
_VERSION = re.compile(r"5\.(\d)\.(\d)")
_FIRST_OF_5 = 413
"""MQVersion ordinal of V5_0_0; each version has two."""
_NODE_JS = "HTTP"
"""What the client for Node.js says of its language."""
AGAIN_S = 3.0
"""When to answer the first settings of a client for Node.js once more."""


class _Session(msgspec.Struct, eq=False):
    """One open Telemetry, and what its client has said of itself.

    (RocketMQ 5: GrpcClientChannel.)
    """

    call: GrpcCall
    channel: GrpcClientChannel
    topics: list[str] = []
    """Of a producer; each is the name of a producer group."""
    consumer: ConsumerData | None = None
    again: asyncio.TimerHandle | None = None


class ClientSessions:
    """Clients and their settings, as long as their Telemetry is open: members of their groups.

    No other call needs a session: after a restart clients go on before they have sent their
    settings again. (RocketMQ 5: ClientActivity, GrpcClientSettingsManager.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        members: Members,
        pops: Pops,
        clock: Clock,
        protos: Any,
        admit: Admits,
    ) -> None:
        self._settings = ClientSettings(config, groups)
        self._members = members
        self._clock = clock
        self._protos = protos
        self._admit = admit
        self._log = LimitedLog(logger)
        self._open: dict[GrpcCall, _Session] = {}
        self._of_client: dict[str, _Session] = {}
        """The latest of each."""
        self.renewals = Renewals(pops, clock, self.is_open)
        self.client_gone: Callable[[str], None] = lambda client_id: None
        """Learns whose Telemetry has ended."""

    def __len__(self) -> int:
        return len(self._open)

    def is_open(self, client_id: str) -> bool:
        """Whether the client has its Telemetry open."""
        return client_id in self._of_client

    # --- telemetry

    def command(self, call: GrpcCall, message: bytes) -> None:
        """Take a TelemetryCommand."""
        try:
            self._command(call, message)
        except DecodeError:
            call.end(GrpcStatus.INVALID_ARGUMENT, "the message is not a TelemetryCommand")
        except CallRefusedError as refused:
            text = f"process client telemetryCommand failed. {refused}"
            call.end(GrpcStatus.INVALID_ARGUMENT, text)

    def _command(self, call: GrpcCall, message: bytes) -> None:
        command = self._protos.TelemetryCommand.FromString(message)
        answer = self._protos.TelemetryCommand()
        try:
            if not call.client_id.strip():
                raise CallRefusedError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
            self._admit(call, settings_needs(command.settings))
        except CallRefusedError as refused:
            answer.status.code, answer.status.message = refused.code, str(refused)
            call.reply(answer.SerializeToString(), last=True)
            return
        session = self._session(call)
        kind = command.WhichOneof("command")
        if kind == "settings":
            self._settings.complete(command.settings)
            self._describe(session, command.settings)
            self._register(session)
            answer.status.code, answer.status.message = Code.OK, "OK"
            answer.settings.CopyFrom(command.settings)
            self._answer(session, answer.SerializeToString())
        elif kind in ("thread_stack_trace", "verify_message_result"):
            session.channel.answered(getattr(command, kind).nonce, command)

    def _answer(self, session: _Session, settings: bytes) -> None:
        """Answer settings.

        The client for Node.js (1.0.8) takes no notice of settings that come while it still asks for
        routes, and then waits for them without end: its first ones are answered twice.
        """
        session.call.reply(settings, last=False)
        language = session.call.fields.get(CallField.LANGUAGE, "")
        if session.again is None and language == _NODE_JS:
            session.again = asyncio.get_running_loop().call_later(
                AGAIN_S, lambda: session.call.reply(settings, last=False)
            )

    def _session(self, call: GrpcCall) -> _Session:
        session = self._open.get(call)
        if session is None:
            channel = GrpcClientChannel(call, self._protos)
            session = self._open[call] = _Session(call, channel)
        self._of_client[call.client_id] = session
        return session

    def ended(self, call: GrpcCall) -> None:
        """The Telemetry of a client has ended."""
        session = self._open.pop(call, None)
        if session is None:
            return
        if session.again is not None:
            session.again.cancel()
        session.channel.ended()
        self._members.connection_closed(session.channel)
        if self._of_client.get(call.client_id) is session:
            del self._of_client[call.client_id]
            self.renewals.telemetry_ended(call.client_id)
            loop = asyncio.get_running_loop()
            loop.call_later(RETURN_MS / 1000, self._look_for, call.client_id)

    def _look_for(self, client_id: str) -> None:
        """Forget a client whose Telemetry was not opened again."""
        if not self.is_open(client_id):
            self.client_gone(client_id)

    def tell_unsubscribed(self, client_id: str, lite_topic: str) -> None:
        """Tell a client that another one of its group has a lite topic now."""
        session = self._of_client.get(client_id)
        if session is not None:
            session.channel.unsubscribe_lite(lite_topic)

    # --- members

    def _describe(self, session: _Session, settings: Any) -> None:
        """Note what the client says of itself."""
        now, channel = self._clock.now(), session.channel
        session.topics = [topic.name for topic in settings.publishing.topics]
        if not settings.HasField("subscription"):
            return
        found = settings.subscription
        channel.subscriptions = [_subscription(entry, now) for entry in found.subscriptions]
        is_push = settings.client_type in (_PUSH_CONSUMER, _LITE_PUSH_CONSUMER)
        session.consumer = ConsumerData(
            group_name=found.group.name,
            consume_type="CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY",
            subscription_data_set=channel.subscriptions,
        )
        channel.properties = {
            "PROP_CLIENT_VERSION": session.call.fields.get(CallField.CLIENT_VERSION, ""),
            "PROP_CONSUME_TYPE": session.consumer.consume_type,
            "PROP_CONSUMEORDERLY": "true" if found.fifo else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(now),
        }

    def _register(self, session: _Session) -> None:
        """Make the client a member of its groups, or say that it is still one."""
        call = session.call
        client = ClientChannel(
            session.channel,
            call.client_id,
            _language(call.fields.get(CallField.LANGUAGE, "")),
            _version(call.fields.get(CallField.CLIENT_VERSION, "")),
            access_key=call.access_key,
            is_grpc=True,
        )
        try:
            self._members.ids.hear(client)
            for topic in session.topics:
                self._members.producers.register(topic, client)
            if session.consumer is not None:
                self._members.consumers.register(session.consumer, client, notify=False)
        except TableFullError as error:  # it sends and receives all the same
            self._log.warning("%r is in no group: %s", session.channel, error)

    # --- the other calls

    def heartbeat(self, call: GrpcCall, request: Any) -> Any:
        """Answer a HeartbeatRequest. Raises CallRefusedError."""
        if request.client_type != _PRODUCER and request.group.name:
            checked_group(request.group)
        session = self._of_client.get(call.client_id)
        if session is not None and session.call.access_key == call.access_key:
            self._register(session)
        if request.group.name:
            self.renewals.heard(call.client_id)
        return self._ok(self._protos.HeartbeatResponse())

    def terminate(self, call: GrpcCall, request: Any) -> Any:
        """Answer a NotifyClientTerminationRequest."""
        session = self._of_client.get(call.client_id)
        if session is not None and session.call.access_key == call.access_key:
            del self._of_client[call.client_id]
            self._members.connection_closed(session.channel)
            self.renewals.client_gone(call.client_id)
            self.client_gone(call.client_id)
        return self._ok(self._protos.NotifyClientTerminationResponse())

    def _ok(self, response: Any) -> Any:
        response.status.code, response.status.message = Code.OK, "OK"
        return response


def _subscription(entry: Any, now: int) -> SubscriptionData:
    """A subscription as heartbeats of RocketMQ 4 have it."""
    expression = entry.expression.expression.strip() or ALL
    is_sql = entry.expression.type == _SQL
    tags = [] if is_sql or expression == ALL else split_tags(expression)
    return SubscriptionData(
        topic=entry.topic.name,
        sub_string=expression,
        tags_set=tags,
        code_set=[string_hash(tag) for tag in tags],
        sub_version=now,
        expression_type=SQL92 if is_sql else TAG,
    )


def _language(header: str) -> str:
    return header if header in LanguageCode.__members__ else LanguageCode.OTHER.name


def _version(header: str) -> int:
    """The MQVersion ordinal of a client's version."""
    found = _VERSION.match(header)
    return VERSION if found is None else _FIRST_OF_5 + 20 * int(found[1]) + 2 * int(found[2])
