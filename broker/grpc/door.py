"""What serves gRPC clients of a broker: the codec of its lanes and the calls of its loop."""

import logging
from collections.abc import Mapping

from congreve.base.clock import Clock
from congreve.base.limited_log import LimitedLog
from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.config import BrokerConfig
from congreve.broker.group.members import Members
from congreve.broker.grpc import access
from congreve.broker.grpc.client_sessions import ClientSessions
from congreve.broker.grpc.lane_codecs import LaneCodecs
from congreve.broker.grpc.lite import LiteCalls
from congreve.broker.grpc.protocol.calls import SERVICE, GrpcCalls, Needs, Serve, Streaming, Unary
from congreve.broker.grpc.protos import Protos
from congreve.broker.grpc.pull import Pulling
from congreve.broker.grpc.receive import Receiving
from congreve.broker.grpc.reflection import Reflection
from congreve.broker.grpc.route import Route
from congreve.broker.grpc.send import SendRules
from congreve.broker.grpc.sending import Sending
from congreve.broker.grpc.settle import Settling
from congreve.broker.lite.lites import Lites
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.pop.service import Pops
from congreve.remoting.http2.built import http2_sessions
from congreve.remoting.lanes.http2 import Http2Sessions
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

MESSAGE_MORE = 64 * 1024
"""Bytes of the largest request beside a message's body."""


class GrpcDoor:
    """The calls of gRPC that one broker serves; `control` is None without accounts.

    `announced` has the addresses for clients of further listeners, by name.
    (RocketMQ 5: ProxyStartup.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        members: Members,
        pops: Pops,
        lites: Lites,
        clock: Clock,
        control: AccessControl | None,
        announced: Mapping[str, str],
    ) -> None:
        self._config = config
        self._codecs = LaneCodecs(config, metadata.groups, clock, control)
        accounts = None if control is None else lambda: control.accounts
        admit = access.CallAccess(accounts, LimitedLog(logger)).admit
        protos = Protos()
        route = Route(config, metadata, protos, announced)
        self.sessions = ClientSessions(config, metadata.groups, members, pops, clock, protos, admit)
        rules = SendRules(metadata.topics, clock, max_body_size=config.store.max_message_size)
        sending = Sending(rules, protos)
        lite = LiteCalls(config, metadata, lites, self.sessions, clock, protos)
        receiving = Receiving(config, metadata.groups, self.sessions.renewals, lite, clock, protos)
        settling = Settling(protos)
        pulling = Pulling(metadata.topics, protos)
        unary: tuple[tuple[str, Serve, Needs], ...] = (
            ("QueryRoute", route.query, access.route_needs),
            ("QueryAssignment", route.assign, access.consume_needs),
            ("Heartbeat", self.sessions.heartbeat, access.client_needs),
            ("NotifyClientTermination", self.sessions.terminate, access.client_needs),
            ("SendMessage", sending.send, access.send_needs),
            ("RecallMessage", sending.recall, access.produce_needs),
            ("EndTransaction", sending.end, access.produce_needs),
            ("ReceiveMessage", receiving.receive, access.receive_needs),
            ("AckMessage", settling.ack, access.consume_needs),
            ("ChangeInvisibleDuration", settling.change, access.consume_needs),
            ("SyncLiteSubscription", lite.sync, access.consume_needs),
            ("ForwardMessageToDeadLetterQueue", settling.forward, access.consume_needs),
            ("PullMessage", pulling.pull, access.receive_needs),
            ("UpdateOffset", pulling.update, access.receive_needs),
            ("GetOffset", pulling.offset, access.receive_needs),
            ("QueryOffset", pulling.query, access.queue_needs),
        )
        methods: dict[str, Unary | Streaming] = {
            f"/{SERVICE}/{name}": Unary(
                getattr(protos, name + "Request"), getattr(protos, name + "Response"), serve, needs
            )
            for name, serve, needs in unary
        }
        methods[f"/{SERVICE}/Telemetry"] = Streaming(self.sessions.command, self.sessions.ended)
        reflection = Reflection(protos)
        methods |= dict.fromkeys(reflection.paths, Streaming(reflection.serve, reflection.ended))
        self.calls = GrpcCalls(methods, admit, receiving.hold)

    def open_calls(self) -> int:
        """Calls that have not ended: Telemetry, and others that the event loop serves."""
        return self.calls.open_calls

    def lane_sessions(self) -> Http2Sessions:
        """The sessions of one lane."""
        most = self._config.store.max_message_size
        return http2_sessions(self._codecs.new(), message_max=most + MESSAGE_MORE)

    def stop(self) -> None:
        """Do nothing more by itself."""
        self.sessions.renewals.stop()

    def connection_closed(self, connection: Connection) -> None:
        """A connection of any client has ended."""
        self.calls.connection_closed(connection)
