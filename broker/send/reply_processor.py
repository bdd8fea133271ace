"""Replies to request messages (RocketMQ: ReplyMessageProcessor).

A reply names the client that waits for it. The broker stores it in the cluster's reply topic, and
pushes it over that client's connection; in an elected group when the group has confirmed it.
"""

import logging
from collections.abc import Mapping

from congreve.base.clock import Clock
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.group.client_ids import ClientIds
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.requests.checks import SendChecks, read_send_header, region_fields
from congreve.broker.requests.wait_limit import WaitLimit
from congreve.broker.send.reserved_properties import MayWrite, ReservedProperties
from congreve.broker.send.shown_log import ShownLog
from congreve.engine.errors import StoreError
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.errors import RecordError
from congreve.records.message import properties
from congreve.records.message.message import Host, Record
from congreve.records.message.property_codec import decode_properties, encode_properties
from congreve.remoting.errors import HeaderError, RemotingError
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 10
WAITING_MAX = 10_000
WAITING_BYTES_MAX = 32 << 20  # of replies that slaves or requesters have not confirmed yet
# The message id when the reply was pushed but not stored: clients parse a number.
NO_MESSAGE_ID = "0"
_TOO_MANY = "too many replies wait for their requesters or for slaves: try again later"


class ReplyMessageProcessor:
    """SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2 (RocketMQ: ReplyMessageProcessor)."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        clients: ClientIds,
        store: MessageStore,
        group_commit: GroupCommit,
        shown: ShownLog,
        clock: Clock,
        may_write: MayWrite | None = None,
    ) -> None:
        self._config = config
        self._checks = SendChecks(config, metadata.topics, store.config, clock)
        self._metadata = metadata
        self._clients = clients
        self._store = store
        self._group_commit = group_commit
        self._shown = shown
        self._clock = clock
        self._reserved = ReservedProperties(may_write)
        self._waiting = WaitLimit(WAITING_MAX, WAITING_BYTES_MAX)

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | None:
        """Store the reply, push it and answer; None when the answer waits for the disk.

        The answer's code says whether the requester got the reply, its ids say where it is stored.
        """
        try:
            header = read_send_header(request)
            self._checks.check(header, request, connection)
            record = self._record(header, request, connection)
            missing = self._metadata.missing(topics=(record.topic,))
            if missing is not None:
                await missing
        except RefusedError as refused:
            return self._answer(request, refused.code, str(refused), {})
        except (HeaderError, RecordError, StoreError) as error:
            return self._answer(request, ResponseCode.SYSTEM_ERROR, str(error), {})
        with self._waiting.holding(len(request.body) + len(header.properties or "")) as may_wait:
            if not may_wait:
                return self._answer(request, ResponseCode.SYSTEM_BUSY, _TOO_MANY, {})
            return await self._store_and_push(header, record, request, connection)

    async def _store_and_push(
        self,
        header: SendMessageRequestHeader,
        record: Record,
        request: RemotingCommand,
        connection: Connection,
    ) -> RemotingCommand | None:
        put = self._store.put(record) if self._config.store_reply_message_enable else None
        is_stored = put is not None and put.status is PutStatus.PUT_OK
        if put is not None and not is_stored:
            logger.warning("cannot store a reply: %s", put.status.name)
        if put is not None and is_stored and not await self._is_shown(put.end):
            fault: str | None = "the reply is stored, but slaves have not confirmed it in time"
        else:
            fault = await self._push(header, record)
        code = ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR
        answered = SendMessageResponseHeader(
            msg_id=NO_MESSAGE_ID, queue_id=record.queue_id, queue_offset=0
        )
        if put is None or not is_stored:
            return self._answer(request, code, fault, answered.fields() if fault is None else {})
        answered.msg_id, answered.queue_offset = put.message_ids, put.queue_offset
        answer = self._answer(request, code, fault, answered.fields())
        return self._group_commit.answer(request, connection, answer, put.end)

    async def _is_shown(self, end: int) -> bool:
        return await self._shown.wait(end, self._group_commit.timeout_s)

    def _answer(
        self, request: RemotingCommand, code: int, remark: str | None, fields: dict[str, str]
    ) -> RemotingCommand:
        return request.reply(code, remark, fields | region_fields(self._config))

    def _record(
        self, header: SendMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> Record:
        given = decode_properties((header.properties or "").encode())
        return Record(
            topic=header.topic,
            body=bytes(request.body),
            properties=self._reserved.of_message(header.topic, given, request, connection),
            queue_id=max(header.queue_id, 0),
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.peer,
            store_host=self._config.store_host,
            reconsume_times=header.reconsume_times or 0,
        )

    async def _push(self, header: SendMessageRequestHeader, reply: Record) -> str | None:
        """Push the reply to its client; return the error, None when there was none."""
        client_id = reply.properties.get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{properties.REPLY_TO_CLIENT}] is null"
        requester = self._clients.find(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        push = RemotingCommand(
            code=RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext_fields=self._push_header(header, reply).fields(),
            body=reply.body,
        )
        try:
            answer = await requester.invoke(push, PUSH_TIMEOUT_S)
        except RemotingError as error:
            return f"push reply message to {client_id} fail. {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail. {answer.remark}"
        return None

    def _push_header(
        self, header: SendMessageRequestHeader, reply: Record
    ) -> ReplyMessageRequestHeader:
        now = self._clock.now()
        pushed = {**reply.properties, properties.PUSH_REPLY_TIME: str(now)}
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=_address(reply.born_host),
            store_host=_address(reply.store_host),
            store_timestamp=now,
            properties=encode_properties(pushed).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )


def _address(host: Host) -> str:
    return f"{host[0]}:{host[1]}"
