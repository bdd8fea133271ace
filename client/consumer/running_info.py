"""Answers administrators' requests about a consumer (RocketMQ: ClientRemotingProcessor)."""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from congreve.client.message import MessageQueue
from congreve.client.pull.process_queue import ProcessQueue
from congreve.client.received import PulledRecords
from congreve.remoting.messages.admin_bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ResetOffsetBody,
)
from congreve.remoting.messages.admin_headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

if TYPE_CHECKING:
    from congreve.client.consumer.member import GroupMember

VERSION_NAME = "V4_9_4"
MEBIBYTE = 1 << 20


class RunningInfo:
    """Answers the requests for one member of a group (RocketMQ: ClientRemotingProcessor,
    ConsumerRunningInfo)."""

    def __init__(self, member: "GroupMember") -> None:
        self._member = member
        self._started_ms = int(time.time() * 1000)

    def handlers(self) -> Mapping[int, Handler]:
        """Handlers by request code."""
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
        }

    def _ids_changed(self, request: RemotingCommand, connection: Connection) -> None:
        self._member.balance_soon()

    async def _reset(self, request: RemotingCommand, connection: Connection) -> None:
        if ResetOffsetRequestHeader.read(request).group == self._member.group:
            await self._member.reset_offsets(ResetOffsetBody.decode(request.body).offset_table)

    def _status(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetConsumerStatusRequestHeader.read(request)
        if header.group != self._member.group:
            return _not_here(request, header.group)
        table = {
            queue: each.commit_offset
            for queue, each in self._member.process_queues.items()
            if queue.topic == header.topic
        }
        return request.reply(0, body=GetConsumerStatusBody(message_queue_table=table).encode())

    def _running_info(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return answer_running_info(request, self._member.group, self.collect)

    def collect(self) -> ConsumerRunningInfo:
        """The state that mqadmin consumerStatus shows."""
        member = self._member
        subscriptions = member.subscriptions
        return ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(member.name_servers.addresses),
                "PROP_CONSUME_TYPE": member.consume_type,
                "PROP_CLIENT_VERSION": VERSION_NAME,
                "PROP_THREADPOOL_CORE_SIZE": str(member.settings.concurrency),
                "PROP_CONSUMEORDERLY": "true" if member.orderly else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "consumerGroup": member.group,
                "messageModel": member.model.value,
                "consumeFromWhere": member.consume_from.value,
            },
            subscription_set=[each.data(member.version_ms) for each in subscriptions.values()],
            mq_table={queue: _info(each) for queue, each in member.process_queues.items()},
            status_table={topic: member.stats.status(topic) for topic in subscriptions},
        )

    async def _consume(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ConsumeMessageDirectlyResultRequestHeader.read(request)
        if header.consumer_group != self._member.group:
            return _not_here(request, header.consumer_group)
        queue = MessageQueue(topic="", broker_name=header.broker_name or "", queue_id=0)
        (message,) = PulledRecords(request.body, namespace=self._member.namespace).messages(queue)
        began = time.perf_counter()
        failure = await self._member.consume_directly(message)
        return request.reply(
            0,
            body=ConsumeMessageDirectlyResult(
                order=self._member.orderly,
                consume_result="CR_SUCCESS" if failure is None else "CR_LATER",
                remark=failure,
                spent_time_mills=int(1000 * (time.perf_counter() - began)),
            ).encode(),
        )


def answer_running_info(
    request: RemotingCommand, group: str, collect: Callable[[], ConsumerRunningInfo]
) -> RemotingCommand:
    """The answer of a member of `group` to GET_CONSUMER_RUNNING_INFO."""
    header = GetConsumerRunningInfoRequestHeader.read(request)
    if header.consumer_group != group:
        return _not_here(request, header.consumer_group)
    info = collect()
    if header.jstack_enable:
        info.jstack = stacks()
    return request.reply(0, body=info.encode())


def _not_here(request: RemotingCommand, group: str) -> RemotingCommand:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return request.reply(ResponseCode.SYSTEM_ERROR, remark)


def _info(process_queue: ProcessQueue) -> ProcessQueueInfo:
    count = len(process_queue)
    return ProcessQueueInfo(
        commit_offset=process_queue.commit_offset,
        cached_msg_min_offset=process_queue.commit_offset if count else 0,
        cached_msg_max_offset=process_queue.last_offset if count else 0,
        cached_msg_count=count,
        cached_msg_size_in_mib=process_queue.cached_bytes // MEBIBYTE,
        locked=process_queue.locked,
        droped=process_queue.dropped,
        last_pull_timestamp=int(process_queue.pulled_at * 1000),
        last_consume_timestamp=int(process_queue.consumed_at * 1000),
    )


def stacks() -> str:
    """Stack traces of all threads (RocketMQ: UtilAll.jstack)."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
