"""Telemetry, heartbeats and ends of clients (RocketMQ 5: ClientActivity)."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from congreve.broker.config import BrokerConfig
from congreve.broker.grpc.access import settings_needs
from congreve.broker.grpc.calls import Admits, GrpcCall
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.errors import CallRefusedError
from congreve.broker.grpc.names import checked_group, checked_topic
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.remoting.lanes.call import GrpcStatus
from congreve.remoting.messages.bodies import SubscriptionGroupConfig

# Of a producer (RocketMQ 5: GrpcClientSettingsManager, ProxyConfig).
SEND_ATTEMPTS = 3
SEND_BACKOFF_MS, SEND_BACKOFF_MAX_MS, SEND_BACKOFF_FACTOR = 10, 1_000, 2.0
# Of a consumer.
BATCH_SIZE = 32
LONG_POLLING_S = 20
RETRY_DELAYS_S = (
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600),
    *(1_200, 1_800, 3_600, 7_200),
)
_PRODUCER = 1
_FURTHER_ORDERLY = "consumeMessageOrderly"


class ClientSessions:
    """Clients and their settings, as long as their Telemetry is open.

    No other call needs a session: after a restart clients go on before they have sent their
    settings again. (RocketMQ 5: ClientActivity, GrpcClientSettingsManager.)
    """

    def __init__(
        self, config: BrokerConfig, groups: SubscriptionGroupManager, protos: Any, admit: Admits
    ) -> None:
        self._config = config
        self._admit = admit
        self._groups = groups
        self._protos = protos
        self._calls: dict[str, GrpcCall] = {}
        self._ended: list[Callable[[str], None]] = []
        self._terminated: list[Callable[[str], None]] = []
        self._serve_command: dict[str, Callable[[GrpcCall, Any], Any]] = {
            "settings": self._settings
        }

    def __len__(self) -> int:
        return len(self._calls)

    def is_open(self, client_id: str) -> bool:
        """Whether the client has its Telemetry open."""
        return client_id in self._calls

    def listen(self, ended: Callable[[str], None], terminated: Callable[[str], None]) -> None:
        """Call them with a client's id: one when its Telemetry has ended, the other when it has
        said that it ends."""
        self._ended.append(ended)
        self._terminated.append(terminated)

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
        self._calls[call.client_id] = call
        serve = self._serve_command.get(command.WhichOneof("command") or "")
        if serve is not None:
            answer.status.code, answer.status.message = Code.OK, "OK"
            answer.settings.CopyFrom(serve(call, command))
            call.reply(answer.SerializeToString(), last=False)

    def ended(self, call: GrpcCall) -> None:
        """The Telemetry of a client has ended."""
        if self._calls.get(call.client_id) is call:
            del self._calls[call.client_id]
            for listener in self._ended:
                listener(call.client_id)

    def _settings(self, call: GrpcCall, command: Any) -> Any:
        """The settings that a client is to use, of those that it sent. Raises CallRefusedError."""
        settings = command.settings
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise CallRefusedError(
                Code.BAD_REQUEST, "there is no publishing or subscription data in settings"
            )
        settings.metric.SetInParent()  # clients of Python up to 5.1.0 wait for it
        if kind == "publishing":
            self._of_producer(settings)
        else:
            self._of_consumer(settings)
        return settings

    def _of_producer(self, settings: Any) -> None:
        for topic in settings.publishing.topics:
            checked_topic(topic)
        policy = settings.backoff_policy
        policy.max_attempts = SEND_ATTEMPTS
        policy.exponential_backoff.initial.FromMilliseconds(SEND_BACKOFF_MS)
        policy.exponential_backoff.max.FromMilliseconds(SEND_BACKOFF_MAX_MS)
        policy.exponential_backoff.multiplier = SEND_BACKOFF_FACTOR
        settings.publishing.max_body_size = self._config.store.max_message_size
        settings.publishing.validate_message_type = True

    def _of_consumer(self, settings: Any) -> None:
        name = checked_group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            checked_topic(entry.topic)
        group = self._groups.find(name)
        if group is None:
            raise CallRefusedError(Code.CONSUMER_GROUP_NOT_FOUND, f"group not found: {name}")
        policy = settings.backoff_policy
        policy.max_attempts = group.retry_max_times + 1
        del policy.customized_backoff.next[:]
        for seconds in RETRY_DELAYS_S:
            policy.customized_backoff.next.add(seconds=seconds)
        settings.subscription.fifo = is_fifo(group)
        settings.subscription.receive_batch_size = BATCH_SIZE
        settings.subscription.long_polling_timeout.FromSeconds(LONG_POLLING_S)

    # --- the other calls

    def heartbeat(self, call: GrpcCall, request: Any) -> Any:
        """Answer a HeartbeatRequest. Raises CallRefusedError."""
        if request.client_type != _PRODUCER and request.group.name:
            checked_group(request.group)
        return self._ok(self._protos.HeartbeatResponse())

    def terminate(self, call: GrpcCall, request: Any) -> Any:
        """Answer a NotifyClientTerminationRequest."""
        self._calls.pop(call.client_id, None)
        for listener in self._terminated:
            listener(call.client_id)
        return self._ok(self._protos.NotifyClientTerminationResponse())

    def _ok(self, response: Any) -> Any:
        response.status.code, response.status.message = Code.OK, "OK"
        return response


def is_fifo(group: SubscriptionGroupConfig | None) -> bool:
    """Whether a group gets the messages of each queue in their order."""
    return group is not None and bool((group.further or {}).get(_FURTHER_ORDERLY))
