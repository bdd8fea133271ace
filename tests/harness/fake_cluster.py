"""A name server with fake brokers, whose answers a test chooses."""

import struct
from collections.abc import Callable
from typing import Any, Self

from congreve.namesrv.routes import BrokerIdentity
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.server import RemotingServer, ServerLimits

Answer = Callable[[RemotingCommand], RemotingCommand | None]

HEART_BEAT, UNREGISTER_CLIENT = 34, 35
CODES = (*range(401), *range(200_050, 200_056), 200_151)


class FakeBroker:
    """Records every request; answers by `answers`, ``{code: function}``, else with success.

    `handlers` take precedence and also get the connection.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.answers: dict[int, Answer] = {}
        self.handlers: dict[int, Handler] = {}
        self.requests: list[RemotingCommand] = []
        self.server = RemotingServer(
            dict.fromkeys(CODES, self._serve), limits=ServerLimits(stop_s=0.1)
        )

    @property
    def address(self) -> str:
        """The broker's address."""
        return f"127.0.0.1:{self.server.port}"

    def asked(self, *codes: int) -> list[RemotingCommand]:
        """The received requests with this code."""
        return [request for request in self.requests if request.code in codes]

    def _serve(self, request: RemotingCommand, connection: Connection) -> Any:
        self.requests.append(request)
        if request.code in self.handlers:
            return self.handlers[request.code](request, connection)
        answer = self.answers.get(request.code)
        return request.reply(0) if answer is None else answer(request)


class FakeCluster:
    """``async with FakeCluster("a", "b") as cluster``; each broker has each topic of `topics`."""

    def __init__(self, *names: str, queues: int = 2, topics: tuple[str, ...] = ("T",)) -> None:
        self.name_server = NameServer(port=0)
        self.brokers = {name: FakeBroker(name) for name in names}
        self._topics = topics
        self._queues = queues

    @property
    def address(self) -> str:
        """The name server's address."""
        return self.name_server.address

    async def __aenter__(self) -> Self:
        await self.name_server.start()
        for broker in self.brokers.values():
            await broker.server.start()
            self.register(broker.name, *self._topics)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            await broker.server.stop()
        await self.name_server.stop()

    def register(self, name: str, *topics: str, perm: int = 6, broker_id: int = 0) -> None:
        """Register all brokers with the name server."""
        configs = {
            topic: TopicConfig(
                topic_name=topic,
                read_queue_nums=self._queues,
                write_queue_nums=self._queues,
                perm=perm,
            )
            for topic in topics
        }
        broker = self.brokers[name]
        self.name_server.routes.register(
            BrokerIdentity("C", name, broker_id, broker.address),
            TopicConfigSerializeWrapper(
                topic_config_table=configs, data_version=DataVersion(counter=1, timestamp=perm)
            ),
            [],
            name,
        )


def stored(request: RemotingCommand) -> RemotingCommand:
    """The answer to a stored message, as in the reference."""
    return request.reply(
        0,
        ext_fields={
            "msgId": "7F00000100002A9F0000000000000000",
            "queueId": request.ext_fields["e"],
            "queueOffset": "7",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        },
    )


def refused(code: int, remark: str = "as configured") -> Answer:
    """An answer function that returns an error response."""
    return lambda request: request.reply(code, remark)


def silence(request: RemotingCommand) -> None:
    """Never answer."""


def record(
    offset: int,
    body: bytes = b"x",
    *,
    topic: str = "T",
    sys_flag: int = 0,
    extra_properties: bytes = b"",
) -> bytes:
    """A stored record, built from the layout and not by the project's encoder."""
    properties = extra_properties + b"TAGS\x01A\x02UNIQ_KEY\x01U%d" % offset
    name = topic.encode()
    crc = _crc(body)
    size = 91 + len(body) + len(name) + len(properties)
    return b"".join(
        (
            struct.pack(">iIIiiqqi", size, 0xDAA320A7, crc, 0, 5, offset, 1000 + offset, sys_flag),
            struct.pack(">q4sIq4sI", 1, bytes((10, 0, 0, 1)), 99, 2, bytes((10, 0, 0, 2)), 10911),
            struct.pack(">iq", 0, 0),
            struct.pack(">i", len(body)) + body,
            bytes((len(name),)) + name,
            struct.pack(">h", len(properties)) + properties,
        )
    )


def _crc(body: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in body:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
    return ~crc & 0x7FFFFFFF


def pulled(code: int, next_offset: int, *records: bytes, max_offset: int = 100) -> Answer:
    """The answer to a pull with these records."""
    return lambda request: request.reply(
        code,
        ext_fields={
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": "0",
            "maxOffset": str(max_offset),
        },
        body=b"".join(records),
    )
