"""What the broker says to its clients unasked (RocketMQ: Broker2Client)."""

import logging
from collections.abc import Iterable

import msgspec

from congreve.broker.clients import ClientChannel
from congreve.broker.transaction import in_real_topic
from congreve.records import properties
from congreve.records.message import Record
from congreve.records.record import encode_record, offset_message_id
from congreve.remoting.bodies import MessageQueue, ResetOffsetBody, ResetOffsetBodyForC
from congreve.remoting.codes import RequestCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection
from congreve.remoting.errors import RemotingError
from congreve.remoting.headers import (
    CheckTransactionStateRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)

logger = logging.getLogger(__name__)

CPP = "CPP"


def notify_consumer_ids_changed(group: str, members: Iterable[Connection]) -> None:
    """Tell members of a group that somebody came or went: they rebalance at once."""
    fields = NotifyConsumerIdsChangedRequestHeader(consumer_group=group).fields()
    for member in members:
        _push(member, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields, b"")


def check_transaction_state(producer: Connection, half: Record) -> None:
    """Ask a producer how the transaction of a half message ended; it answers by code 37."""
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
    offsets: dict[MessageQueue, int],
    members: Iterable[ClientChannel],
) -> None:
    """Tell members to go to these offsets; C++ clients read only the list form of the body."""
    for member in members:
        body = (
            list_form(offsets).encode()
            if member.language == CPP
            else (ResetOffsetBody(offset_table=offsets).encode())
        )
        _push(member.connection, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header.fields(), body)


def list_form(offsets: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        offset_table=[
            {**msgspec.to_builtins(queue), "offset": offset} for queue, offset in offsets.items()
        ]
    )


def _push(connection: Connection, code: int, fields: dict[str, str], body: bytes) -> None:
    if connection.closed:
        return
    try:
        connection.oneway(RemotingCommand(code=code, ext_fields=fields, body=body))
    except RemotingError as error:
        logger.warning("request %d to %s:%d was not sent: %s", code, *connection.peer, error)
