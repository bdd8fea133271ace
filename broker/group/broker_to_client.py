"""Requests of the broker to its clients (RocketMQ: Broker2Client)."""

import logging
from collections.abc import Generator, Iterable

import msgspec

from congreve.broker.group.clients import Channel, ClientChannel
from congreve.records.message import properties
from congreve.records.message.half_messages import in_real_topic
from congreve.records.message.message import Record
from congreve.records.record import encode_record, offset_message_id
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.admin_bodies import ResetOffsetBodyForC
from congreve.remoting.messages.admin_headers import ResetOffsetRequestHeader
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    CheckTransactionStateRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)

logger = logging.getLogger(__name__)

CPP = "CPP"


def notify_consumer_ids_changed(group: str, member: Channel) -> None:
    """Notify a member that its group has changed: it rebalances at once."""
    fields = NotifyConsumerIdsChangedRequestHeader(consumer_group=group).fields()
    _push(member, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields, b"")


def check_transaction_state(producer: Channel, half: Record) -> None:
    """Ask a producer how the transaction of a half message ended; it answers with code 37."""
    unique_key = half.properties.get(properties.UNIQ_KEY)
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=offset_message_id(half.store_host, half.physical_offset),
    )
    body = encode_record(in_real_topic(half))
    _push(producer, RequestCode.CHECK_TRANSACTION_STATE, header.fields(), body)


def reset_offsets(
    header: ResetOffsetRequestHeader,
    members: Iterable[ClientChannel],
    body: bytes,
    list_body: bytes,
) -> Generator[None, None, None]:
    """Send members their new offsets; C++ clients read only the list form of the body."""
    for member in members:
        of_member = list_body if member.language == CPP else body
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        _push(member.connection, code, header.fields(), of_member)
        yield


def list_form(offsets: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    """The body of a reset in the form that C++ clients read."""
    return ResetOffsetBodyForC(
        offset_table=[
            {**msgspec.to_builtins(queue), "offset": offset} for queue, offset in offsets.items()
        ]
    )


def _push(connection: Channel, code: int, fields: dict[str, str], body: bytes) -> None:
    if connection.closed:
        return
    try:
        connection.oneway(RemotingCommand(code=code, ext_fields=fields, body=body))
    except RemotingError as error:
        logger.warning("request %d to %s:%d was not sent: %s", code, *connection.peer, error)
