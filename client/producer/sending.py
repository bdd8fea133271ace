"""Sends a prepared message: chooses a queue, retries, keeps a deadline (RocketMQ:
DefaultMQProducerImpl.sendDefaultImpl and sendKernelImpl, TopicPublishInfo)."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from copy import copy

from congreve.client.checks import check_queue
from congreve.client.errors import (
    BrokerError,
    BrokerNotFoundError,
    ClientError,
    InvalidSettingError,
    NoNameServerError,
    RouteNotFoundError,
    SendTimeoutError,
)
from congreve.client.hooks import SendContext, SendHook
from congreve.client.logs import Log
from congreve.client.message import MessageQueue
from congreve.client.outgoing import Outgoing
from congreve.client.results import SendResult, SendStatus
from congreve.client.transport.faults import LatencyFaults
from congreve.client.transport.route import (
    DEFAULT_TOPIC_QUEUES,
    RouteCache,
    TopicRoute,
)
from congreve.client.user_code import call_after
from congreve.records.message.properties import MSG_REGION, TRACE_SWITCH
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from congreve.remoting.errors import RemotingError, RequestTimeoutError
from congreve.remoting.messages.codes import LanguageCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.blocking_client import BlockingClient
from congreve.remoting.transport.client import RemotingClient

log = Log(__name__)

RETRYABLE = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Error codes after which another broker is tried."""

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]
"""A function that picks one of a topic's queues."""

_STATUSES = {int(status): status for status in SendStatus}


class Sender:
    """Sends for one producer group (RocketMQ: DefaultMQProducerImpl).

    Sends rotate through the queues; the attempt after a failure goes to another broker if there is
    one. With `faults`, brokers that were slow or failed are avoided for a while; with `vip_channel`
    requests go to the broker's port minus two. `clock` returns seconds since 1970. Deadlines are
    times of time.monotonic(), which event loops use too.
    """

    def __init__(
        self,
        group: str,
        routes: RouteCache,
        remoting: RemotingClient | BlockingClient,
        *,
        retries: int,
        retry_when_not_stored_ok: bool,
        faults: LatencyFaults | None = None,
        hooks: Sequence[SendHook] = (),
        vip_channel: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._group = group
        self._attempts = 1 + max(0, retries)
        self._retry_when_not_stored_ok = retry_when_not_stored_ok
        self._faults = faults
        self._hooks = hooks
        self._vip_channel = vip_channel
        self._routes = routes
        self._remoting = remoting
        self._clock = clock
        self._turn = random.randrange(1 << 16)

    async def send(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float,
    ) -> SendResult:
        """Return the result of the successful attempt; `timeout_s` limits all attempts together.

        With a queue or a selector there is one attempt. An attempt waits until a broker with the
        topic accepts messages. Raises NoNameServerError when no name server says which these are,
        RouteNotFoundError when none of them does within `timeout_s` seconds,
        SendTimeoutError when an attempt is not confirmed within that time, another ClientError or a
        RemotingError when all attempts fail.
        """
        deadline = time.monotonic() + timeout_s
        route = await self._route(outgoing, queue, deadline)
        attempts = 1 if queue is not None or selector is not None else self._attempts
        last_broker: str | None = None
        while True:
            attempts -= 1
            chosen = queue or self.choose(route, selector, last_broker)
            last_broker = chosen.broker_name
            try:
                result = await self._attempt(outgoing, chosen, route, deadline)
            except (BrokerError, BrokerNotFoundError, RemotingError) as error:
                self._routes.note_error(error)
                self._check_time(outgoing, deadline, error)
                if not attempts or not _is_retryable(error):
                    raise
                log.info(
                    "send failed, trying again",
                    topic=route.topic,
                    attempts_left=attempts,
                    error=error,
                )
                try:
                    route = await self._route(outgoing, queue, deadline)
                except (NoNameServerError, RouteNotFoundError):
                    raise _late(outgoing) from error
                continue
            if (
                result.status is SendStatus.SEND_OK
                or not self._retry_when_not_stored_ok
                or not attempts
            ):
                return result

    async def send_oneway(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float,
    ) -> None:
        """Send without asking for an answer. Raises as send() does until the request is written."""
        deadline = time.monotonic() + timeout_s
        route = await self._route(outgoing, queue, deadline)
        chosen = queue or self.choose(route, selector, None)
        address = self._address(route, chosen)
        context = self._context(outgoing, chosen, address)
        context.oneway = True
        for hook in self._hooks:
            hook.before_send(context)
        await self._remoting.oneway_by(address, self._request(outgoing, chosen), deadline)
        call_after((hook.after_send for hook in self._hooks), context)

    def with_client(self, remoting: BlockingClient) -> "Sender":
        """A copy that sends over another client; both share routes and observed faults."""
        sender = copy(self)
        sender._remoting = remoting
        return sender

    def choose(
        self, route: TopicRoute, selector: Selector | None, last_broker: str | None
    ) -> MessageQueue:
        """The next queue in rotation, preferably of another broker than the last attempt."""
        queues = route.write_queues
        if selector is not None:
            if not callable(selector):
                raise InvalidSettingError(f"selector is {selector!r}: a function is expected")
            chosen = selector(queues)
            check_queue(chosen)
            return chosen
        self._turn += 1
        if self._faults is not None:
            return self._faults.choose(queues, self._turn)
        count = len(queues)
        if last_broker is not None:
            for turn in range(self._turn, self._turn + count):
                if queues[turn % count].broker_name != last_broker:
                    self._turn = turn
                    break
        return queues[self._turn % count]

    async def _attempt(
        self, outgoing: Outgoing, queue: MessageQueue, route: TopicRoute, deadline: float
    ) -> SendResult:
        address = self._address(route, queue)
        if self._faults is None and not self._hooks:
            answer = await self._remoting.call(address, self._request(outgoing, queue), deadline)
            return _result(answer, address, outgoing, queue)
        context = self._context(outgoing, queue, address)
        begin = time.monotonic()
        for hook in self._hooks:
            hook.before_send(context)
        try:
            answer = await self._remoting.call(address, self._request(outgoing, queue), deadline)
            context.region = answer.ext_fields.get(MSG_REGION)
            context.trace_on = answer.ext_fields.get(TRACE_SWITCH) != "false"
            context.result = _result(answer, address, outgoing, queue)
        except (Exception, asyncio.CancelledError) as error:
            context.error = error
            raise
        finally:
            context.seconds = time.monotonic() - begin
            self._note(context)
        return context.result

    def _note(self, context: SendContext) -> None:
        if self._faults is not None:
            if isinstance(context.error, BrokerError | RemotingError):
                self._faults.failed(context.queue.broker_name)
            elif context.error is None:
                self._faults.answered(context.queue.broker_name, context.seconds)
        call_after((hook.after_send for hook in self._hooks), context)

    def _context(self, outgoing: Outgoing, queue: MessageQueue, address: str) -> SendContext:
        return SendContext(
            group=self._group,
            outgoing=outgoing,
            queue=queue,
            address=address,
            began_at=self._clock(),
        )

    def _address(self, route: TopicRoute, queue: MessageQueue) -> str:
        address = route.master(queue.broker_name) or self._routes.address(queue.broker_name)
        return vip_address(address) if self._vip_channel else address

    def _request(self, outgoing: Outgoing, queue: MessageQueue) -> RemotingCommand:
        """The request with SendMessageRequestHeaderV2's fields; they are valid by construction
        and not checked again."""
        fields = {
            "a": self._group,
            "b": outgoing.topic,
            "c": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "d": _DEFAULT_TOPIC_QUEUES,
            "e": str(queue.queue_id),
            "f": str(outgoing.sys_flag),
            "g": str(int(self._clock() * 1000)),
            "h": str(outgoing.flag),
            "i": outgoing.properties,
            "j": "0",
            "k": "false",
            "m": "true" if outgoing.is_batch else "false",
        }
        return RemotingCommand(
            code=outgoing.code, language=LanguageCode.PYTHON, ext_fields=fields, body=outgoing.body
        )

    async def _route(
        self, outgoing: Outgoing, queue: MessageQueue | None, deadline: float
    ) -> TopicRoute:
        """The topic's route, once messages can be sent to it. Raises NoNameServerError or
        RouteNotFoundError when that is not before `deadline`."""
        topic = outgoing.topic
        route = self._routes.known(topic)
        if route is not None and route.is_writable(queue):
            return route
        try:
            if isinstance(self._remoting, BlockingClient):
                return self._routes.wait_writable(topic, queue, deadline)
            async with asyncio.timeout_at(deadline):
                return await self._routes.find_writable(topic, queue)
        except TimeoutError:
            if self._routes.known(topic) is None:
                raise NoNameServerError(
                    f"no name server named the brokers of topic {topic} until the send's timeout;"
                    " the message was not sent"
                ) from None
            lack = "writable queue" if queue is None else f"master of {queue.broker_name}"
            raise RouteNotFoundError(
                f"topic {topic} had no {lack} until the send's timeout; the message was not sent"
            ) from None

    def _check_time(self, outgoing: Outgoing, deadline: float, error: Exception) -> None:
        """Raises SendTimeoutError when no time is left for another attempt."""
        if isinstance(error, RequestTimeoutError) or (time.monotonic() >= deadline):
            raise _late(outgoing) from error


def vip_address(address: str) -> str:
    """The address of a broker's VIP channel, which takes no pulls: its port minus two."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


_DEFAULT_TOPIC_QUEUES = str(DEFAULT_TOPIC_QUEUES)


def _late(outgoing: Outgoing) -> SendTimeoutError:
    return SendTimeoutError(
        f"message {outgoing.message_id[:32]} to {outgoing.topic} was not confirmed in time; it may "
        "be stored nevertheless"
    )


def _is_retryable(error: ClientError | RemotingError) -> bool:
    return not isinstance(error, BrokerError) or error.code in RETRYABLE


def _result(
    answer: RemotingCommand, address: str, outgoing: Outgoing, queue: MessageQueue
) -> SendResult:
    status = _STATUSES.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark, address)
    fields = answer.ext_fields
    try:
        queue_id = int(fields["queueId"])
        if queue_id != queue.queue_id:
            queue = MessageQueue(
                topic=queue.topic, broker_name=queue.broker_name, queue_id=queue_id
            )
        return SendResult(
            status=status,
            message_id=outgoing.message_id,
            offset_message_id=fields["msgId"],
            queue=queue,
            queue_offset=int(fields["queueOffset"]),
            count=outgoing.count,
            transaction_id=fields.get("transactionId"),
            recall_handle=fields.get("recallHandle"),
        )
    except (KeyError, ValueError) as error:
        raise BrokerError(answer.code, f"the answer to a send lacks {error}", address) from error
