"""Administration of connected clients (RocketMQ: AdminBrokerProcessor, Broker2Client)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping

from congreve.broker.after_repair import after_repair
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.group.broker_to_client import list_form, reset_offsets
from congreve.broker.group.clients import ClientChannel
from congreve.broker.group.members import Members
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.offsets import NO_OFFSET
from congreve.broker.pull.checks import known_topic
from congreve.engine.store import MessageStore
from congreve.records.errors import RecordError
from congreve.records.record import parse_offset_message_id
from congreve.remoting.errors import RemotingError, RequestTimeoutError
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_bodies import (
    ConsumerConnection,
    GetConsumerStatusBody,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    ResetOffsetBody,
)
from congreve.remoting.messages.admin_headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
    ResetOffsetRequestHeader,
)
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)

RELAY_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
MAX_OFFSET_TIMESTAMP = -1


class ClientAdminProcessor:
    """Connections of groups, requests relayed to clients, and resets of their offsets.

    RocketMQ: AdminBrokerProcessor, Broker2Client.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        members: Members,
        store: MessageStore,
        pieces: Pieces,
        reset_pops: Callable[[str, str, int, int], bool] = lambda *_: False,
    ) -> None:
        self._reset_pops = reset_pops
        self._config = config
        self._topics = metadata.topics
        self._members = members
        self._consumers = members.consumers
        self._producers = members.producers
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self._store = store
        self._pieces = pieces

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producers,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: after_repair(
                self._store.repairs, self.consume_directly
            ),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_consumer_status,
        }

    async def get_consumer_connections(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The members of a consumer group, and its subscriptions."""
        name = GetConsumerConnectionListRequestHeader.read(request).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body = ConsumerConnection(
            connection_set=[client.body() for client in group.channels.values()],
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=dict(group.subscriptions),
        )
        return request.reply(ResponseCode.SUCCESS, body=await self._pieces.run(body.encode_steps()))

    async def get_producer_connections(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The members of a producer group."""
        name = GetProducerConnectionListRequestHeader.read(request).producer_group
        channels = self._producers.groups.get(name)
        if channels is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=[c.body() for c in channels.values()])
        return request.reply(ResponseCode.SUCCESS, body=await self._pieces.run(body.encode_steps()))

    async def get_all_producers(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The members of all producer groups."""
        body = await self._pieces.run(self._all_producers())
        return request.reply(ResponseCode.SUCCESS, body=body)

    def _all_producers(self) -> Generator[None, None, bytes]:
        found: dict[str, list[ProducerInfo]] = {}
        for name, channels in list(self._producers.groups.items()):
            found[name] = []
            for client in list(channels.values()):
                found[name].append(
                    ProducerInfo(
                        client_id=client.client_id,
                        remote_ip="/" + client.address,
                        language=client.language,
                        version=client.version,
                        last_update_timestamp=client.last_seen_ms,
                    )
                )
                yield
        return (yield from ProducerTableInfo(data=found).encode_steps())

    async def get_running_info(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Relay the request to a consumer, and its answer back."""
        header = GetConsumerRunningInfoRequestHeader.read(request)
        return await self._relay(
            request, header.consumer_group, header.client_id, request.ext_fields, request.body
        )

    def consume_directly(
        self, request: RemotingCommand, connection: Connection
    ) -> Awaitable[RemotingCommand]:
        """Send a stored message to a consumer, and return its result."""
        header = ConsumeMessageDirectlyResultRequestHeader.read(request)
        try:
            _, offset = parse_offset_message_id(header.msg_id or "")
        except RecordError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        found = self._store.shown_record_at(offset)
        if found is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"no message with the offset id {header.msg_id}"
            )
        fields = {**request.ext_fields, "brokerName": self._config.broker_name}
        return self._relay(
            request, header.consumer_group, header.client_id or "", fields, bytes(found)
        )

    async def _relay(
        self,
        request: RemotingCommand,
        group: str,
        client_id: str,
        fields: dict[str, str],
        body: bytes,
    ) -> RemotingCommand:
        """Send a tool's request to a client, and return its answer."""
        client = self._members.find_consumer(group, client_id)
        if client is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        question = RemotingCommand(code=request.code, ext_fields=fields, body=body)
        try:
            answer = await client.connection.invoke(question, RELAY_TIMEOUT_S)
        except RequestTimeoutError as error:
            raise RefusedError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}>: {error}"
            ) from error
        except RemotingError as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}>: {error}"
            ) from error
        return request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)

    async def reset_offset(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Send members their new offsets; the broker's table follows when they commit them.

        Pops continue there at once.
        """
        header = ResetOffsetRequestHeader.read(request)
        group = self._consumers.groups.get(header.group)
        if header.queue_id is not None and header.queue_id >= 0:
            offsets = await self._reset_queue(header, header.queue_id)
        else:
            offsets = await self._reset_topic(header, has_members=group is not None)
        body = await self._pieces.run(ResetOffsetBody(offset_table=offsets).encode_steps())
        list_body = await self._pieces.run(list_form(offsets).encode_steps())
        members = [] if group is None else list(group.channels.values())
        await self._pieces.run(reset_offsets(header, members, body, list_body))
        logger.info(
            "offsets of %s on %s reset by %s:%d", header.group, header.topic, *connection.peer
        )
        return request.reply(ResponseCode.SUCCESS, body=body)

    async def _reset_topic(
        self, header: ResetOffsetRequestHeader, *, has_members: bool
    ) -> dict[MessageQueue, int]:
        """Reset the pops of all queues to a time."""
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"reset offset failed, no topic in this broker. topic={header.topic}",
            )
        offsets = await self._pieces.run(self._offsets_to_reset(header, topic.write_queue_nums))
        pops = [
            self._reset_pops(header.group, header.topic, queue.queue_id, offset)
            for queue, offset in offsets.items()
        ]
        if any(pops):
            await self._acknowledge(header)
        elif not has_members:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group}"
                f" Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        return offsets

    async def _reset_queue(
        self, header: ResetOffsetRequestHeader, queue_id: int
    ) -> dict[MessageQueue, int]:
        """Reset one queue to an offset or a time, as tools of RocketMQ 5 ask; also that of a group
        without members (RocketMQ 5: AdminBrokerProcessor.resetOffsetInner)."""
        group, topic = header.group, header.topic
        known = known_topic(self._topics, topic)
        if not 0 <= queue_id < known.read_queue_nums:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}]"
                f" topicConfig.readQueueNums:[{known.read_queue_nums}]",
            )
        if group not in self._groups.table:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        low = max(self._store.min_offset(topic, queue_id), 0)
        high = self._store.max_offset(topic, queue_id)
        offset = header.offset
        if offset is None or offset == NO_OFFSET:
            offset = self._offset_at(topic, queue_id, header.timestamp)
        elif not low <= offset <= high:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        if not self._reset_pops(group, topic, queue_id, offset):
            self._offsets.commit(group, topic, queue_id, offset)
        await self._acknowledge(header)
        return {self._queue(topic, queue_id): offset}

    async def _acknowledge(self, header: ResetOffsetRequestHeader) -> None:
        """Wait until the offsets of a group's pops are on disk."""
        for queue_id in self._offsets.queues(header.group, header.topic):
            self._offsets.acknowledge(header.group, header.topic, queue_id)
        await self._offsets.journal.write()

    def _offsets_to_reset(
        self, header: ResetOffsetRequestHeader, queues: int
    ) -> Generator[None, None, dict[MessageQueue, int]]:
        offsets: dict[MessageQueue, int] = {}
        for queue_id in range(queues):
            offsets[self._queue(header.topic, queue_id)] = self._offset_to_reset(header, queue_id)
            yield
        return offsets

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self._config.broker_name, queue_id=queue_id)

    def _offset_to_reset(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        consumed = self._offsets.query(header.group, header.topic, queue_id)
        if consumed == NO_OFFSET:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The consumer group <{header.group}> has no offset on"
                f" {header.topic} queue {queue_id}",
            )
        wanted = self._offset_at(header.topic, queue_id, header.timestamp)
        return wanted if header.is_force else min(wanted, consumed)

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp == MAX_OFFSET_TIMESTAMP:
            return max(self._store.max_offset(topic, queue_id), 0)
        return max(self._store.offset_at(topic, queue_id, timestamp), 0)

    async def get_consumer_status(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The offsets that members have consumed."""
        header = GetConsumerStatusRequestHeader.read(request)
        group = self._consumers.groups.get(header.group)
        if group is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        fields = {"topic": header.topic, "group": header.group}
        clients = [
            client
            for client in group.channels.values()
            if not header.client_addr or header.client_addr == client.client_id
        ]
        # All at once: a member that hangs must not use up the time of the others.
        statuses = await asyncio.gather(*await self._pieces.run(_ask_all(clients, fields)))
        table = {
            client.client_id: status.message_queue_table
            for client, status in zip(clients, statuses, strict=True)
            if status is not None
        }
        body = GetConsumerStatusBody(consumer_table=table)
        return request.reply(ResponseCode.SUCCESS, body=await self._pieces.run(body.encode_steps()))


def _ask_all(
    clients: Iterable[ClientChannel], fields: dict[str, str]
) -> Generator[None, None, list[asyncio.Task[GetConsumerStatusBody | None]]]:
    asked = []
    for client in clients:
        asked.append(asyncio.create_task(_status(client, fields)))
        yield
    return asked


async def _status(client: ClientChannel, fields: dict[str, str]) -> GetConsumerStatusBody | None:
    """A member's offsets, None when it does not answer."""
    question = RemotingCommand(code=RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields=fields)
    try:
        answer = await client.connection.invoke(question, STATUS_TIMEOUT_S)
    except RemotingError as error:
        logger.warning("no status from %s: %s", client.client_id, error)
        return None
    if answer.code != ResponseCode.SUCCESS or not answer.body:
        return None
    return GetConsumerStatusBody.decode(answer.body)
