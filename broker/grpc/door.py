"""What serves gRPC clients of a broker: the codec of its lanes and the calls of its loop."""

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.grpc.calls import GrpcCalls, Streaming, Unary
from congreve.broker.grpc.client_sessions import ClientSessions
from congreve.broker.grpc.protos import Protos
from congreve.broker.grpc.receive import Receiving
from congreve.broker.grpc.route import Route
from congreve.broker.grpc.send import SendRules
from congreve.broker.grpc.send_codec import GrpcCodec
from congreve.broker.grpc.sending import Sending
from congreve.broker.grpc.settle import Settling
from congreve.broker.metadata.metadata import Metadata
from congreve.records.message.properties import RESERVED_BY_GRPC
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC, SYSTEM_TOPICS
from congreve.remoting.http2.built import http2_sessions
from congreve.remoting.lanes.http2 import Http2Sessions
from congreve.remoting.transport.connection import Connection

MESSAGE_MORE = 64 * 1024
"""Bytes of the largest request beside a message's body."""


class GrpcDoor:
    """The calls of gRPC that one broker serves (RocketMQ 5: ProxyStartup)."""

    def __init__(self, config: BrokerConfig, metadata: Metadata, clock: Clock) -> None:
        self._config = config
        protos = Protos()
        route = Route(config, metadata, protos)
        self.sessions = ClientSessions(config, metadata.groups, protos)
        rules = SendRules(metadata.topics, clock, max_body_size=config.store.max_message_size)
        sending = Sending(rules, protos)
        receiving = Receiving(config, metadata.groups, clock, protos)
        settling = Settling(protos)
        self.calls = GrpcCalls(
            {
                "QueryRoute": Unary(
                    protos.QueryRouteRequest, protos.QueryRouteResponse, route.query
                ),
                "Heartbeat": Unary(
                    protos.HeartbeatRequest, protos.HeartbeatResponse, self.sessions.heartbeat
                ),
                "NotifyClientTermination": Unary(
                    protos.NotifyClientTerminationRequest,
                    protos.NotifyClientTerminationResponse,
                    self.sessions.terminate,
                ),
                "QueryAssignment": Unary(
                    protos.QueryAssignmentRequest, protos.QueryAssignmentResponse, route.assign
                ),
                "ReceiveMessage": Unary(
                    protos.ReceiveMessageRequest, protos.ReceiveMessageResponse, receiving.receive
                ),
                "AckMessage": Unary(
                    protos.AckMessageRequest, protos.AckMessageResponse, settling.ack
                ),
                "ChangeInvisibleDuration": Unary(
                    protos.ChangeInvisibleDurationRequest,
                    protos.ChangeInvisibleDurationResponse,
                    settling.change,
                ),
                "ForwardMessageToDeadLetterQueue": Unary(
                    protos.ForwardMessageToDeadLetterQueueRequest,
                    protos.ForwardMessageToDeadLetterQueueResponse,
                    settling.forward,
                ),
                "RecallMessage": Unary(
                    protos.RecallMessageRequest, protos.RecallMessageResponse, sending.recall
                ),
                "SendMessage": Unary(
                    protos.SendMessageRequest, protos.SendMessageResponse, sending.send
                ),
                "Telemetry": Streaming(self.sessions.command, self.sessions.ended),
            }
        )

    def lane_sessions(self) -> Http2Sessions:
        """The sessions of one lane."""
        most = self._config.store.max_message_size
        return http2_sessions(
            GrpcCodec(
                RESERVED_BY_GRPC | SYSTEM_TOPICS,
                template=AUTO_CREATE_TOPIC_KEY_TOPIC,
                max_body_size=most,
            ),
            message_max=most + MESSAGE_MORE,
        )

    def connection_closed(self, connection: Connection) -> None:
        """A connection of any client has ended."""
        self.calls.connection_closed(connection)
