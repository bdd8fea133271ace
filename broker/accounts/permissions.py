"""What each request needs: one table from request code to resources and permissions.

A code without a row has no handler: the broker does not start. Where a row asks for more than
4.9.4, docs/accounts.md says so. (RocketMQ: PlainAccessValidator, Permission.)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from congreve.broker.accounts.accounts import Kind, Need, Perm, topic_need
from congreve.broker.errors import RefusedError, check_body_size
from congreve.broker.group.client_processor import HEARTBEAT_MAX
from congreve.broker.group.consumer_processor import LOCK_BODY_MAX
from congreve.records.message.flags import SysFlag
from congreve.records.message.half_messages import says_transaction
from congreve.records.message.message import Record
from congreve.records.message.properties import (
    PRODUCER_GROUP,
    REAL_TOPIC,
    TRANSACTION_PREPARED,
)
from congreve.records.message.property_codec import decode_properties
from congreve.records.message.topics import NOT_FOR_CONSUMERS
from congreve.remoting.messages.bodies import (
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand

Source = Callable[[RemotingCommand], Iterable[Need]]
"""Reads from a request what it needs. Raises CongreveError for a request that is malformed."""

FindRecord = Callable[[int], Record | None]
"""The record at a physical offset, None without one."""

EITHER = Perm.PUB | Perm.SUB
OFFSET_DIGITS_MAX = 18


class Rule(msgspec.Struct, frozen=True):
    """What one request code needs beside a valid signature.

    Requests of administrators are audited, unless they are `routine`. An `open` one needs nothing.
    Only administrators read the topics in `private`.
    """

    sources: tuple[Source, ...] = ()
    admin: bool = False
    routine: bool = False
    open: bool = False
    private: frozenset[str] = frozenset()

    def needs(self, request: RemotingCommand) -> Iterator[Need]:
        """All needs of a request. Raises CongreveError for one that is malformed."""
        for source in self.sources:
            for need in source(request):
                reads = need.kind is Kind.TOPIC and need.perm & Perm.SUB
                yield need._replace(admin=bool(reads) and need.name in self.private)


def rules(find: FindRecord, private: frozenset[str] = NOT_FOR_CONSUMERS) -> Mapping[int, Rule]:
    """The rules of all request codes; `find` reads the messages that requests refer to.

    Only administrators read the topics in `private`.
    """
    table = _of_producers(find) | _of_consumers(find) | _of_queries(find) | _of_administrators()
    return {code: msgspec.structs.replace(rule, private=private) for code, rule in table.items()}


def _of_producers(find: FindRecord) -> dict[int, Rule]:
    long_name, short_name = _topic("topic", Perm.PUB), _topic("b", Perm.PUB)
    half = _half("f", "a", "i")
    return {
        RequestCode.SEND_MESSAGE: _rule(long_name, _half("sysFlag", "producerGroup", "properties")),
        RequestCode.SEND_MESSAGE_V2: _rule(short_name, half),
        RequestCode.SEND_BATCH_MESSAGE: _rule(short_name, half),
        RequestCode.SEND_REPLY_MESSAGE: _rule(long_name),
        RequestCode.SEND_REPLY_MESSAGE_V2: _rule(short_name),
        RequestCode.RECALL_MESSAGE: _rule(long_name),
        RequestCode.END_TRANSACTION: _rule(
            _message(find, "commitLogOffset", Perm.PUB), _group("producerGroup", Perm.PUB)
        ),
    }


def _of_consumers(find: FindRecord) -> dict[int, Rule]:
    topic, group = _topic("topic", Perm.SUB), _group("consumerGroup")
    return {
        RequestCode.PULL_MESSAGE: _rule(topic, group),
        RequestCode.LITE_PULL_MESSAGE: _rule(topic, group),
        RequestCode.QUERY_CONSUMER_OFFSET: _rule(topic, group),
        RequestCode.UPDATE_CONSUMER_OFFSET: _rule(topic, group),
        RequestCode.HEART_BEAT: _rule(_heartbeat),
        RequestCode.UNREGISTER_CLIENT: _rule(_group("consumerGroup", optional=True)),
        RequestCode.CONSUMER_SEND_MSG_BACK: _rule(
            _group("group"), _message(find, "offset", Perm.SUB)
        ),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: _rule(group),
        RequestCode.LOCK_BATCH_MQ: _rule(_locks),
        RequestCode.UNLOCK_BATCH_MQ: _rule(_locks),
        RequestCode.CHECK_CLIENT_CONFIG: _rule(_client_config),
    }


def _of_queries(find: FindRecord) -> dict[int, Rule]:
    topic, of_queue = _rule(_topic("topic", Perm.SUB)), _rule(_topic("topic", EITHER))
    return {
        RequestCode.QUERY_MESSAGE: topic,
        RequestCode.VIEW_MESSAGE_BY_ID: _rule(_message(find, "offset", Perm.SUB)),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: of_queue,
        RequestCode.GET_MAX_OFFSET: of_queue,
        RequestCode.GET_MIN_OFFSET: of_queue,
        RequestCode.GET_EARLIEST_MSG_STORETIME: of_queue,
        RequestCode.GET_TOPIC_STATS_INFO: of_queue,
        RequestCode.QUERY_CONSUME_QUEUE: _rule(
            _topic("topic", Perm.SUB), _group("consumerGroup", optional=True)
        ),
        RequestCode.QUERY_CONSUME_TIME_SPAN: _rule(_topic("topic", Perm.SUB), _group("group")),
        RequestCode.GET_CONSUME_STATS: _rule(
            _group("consumerGroup"), _topic("topic", Perm.SUB, optional=True)
        ),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: _rule(_group("consumerGroup")),
        # Clients ask for the route of a topic that does not exist yet, too.
        RequestCode.GET_ROUTEINFO_BY_TOPIC: _rule(),
    }


def _of_administrators() -> dict[int, Rule]:
    codes = (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.COUNT_DELAYED_MESSAGES,
        RequestCode.LIST_DELAYED_MESSAGES,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    )
    # A slave repeats these at its master: their lines would hide all others.
    of_slaves = (
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.AWAIT_TABLE_CHANGE,
    )
    table: dict[int, Rule] = dict.fromkeys(codes, Rule(admin=True))
    table.update(dict.fromkeys(of_slaves, Rule(admin=True, routine=True)))
    return table


def _rule(*sources: Source) -> Rule:
    return Rule(sources)


# --- sources


def _topic(field: str, perm: Perm, *, optional: bool = False) -> Source:
    def needs(request: RemotingCommand) -> Iterator[Need]:
        name = request.ext_fields.get(field)
        if name is not None or not optional:
            yield topic_need(name or "", perm)

    return needs


def _group(field: str, perm: Perm = Perm.SUB, *, optional: bool = False) -> Source:
    def needs(request: RemotingCommand) -> Iterator[Need]:
        name = request.ext_fields.get(field)
        if name is not None or not optional:
            yield Need(Kind.GROUP, name or "", perm)

    return needs


def _half(flags: str, group: str, properties: str) -> Source:
    """The producer groups of a half message: of its header, and the one that will have to end it,
    which its properties name."""
    of_group = _group(group, Perm.PUB)

    def needs(request: RemotingCommand) -> Iterator[Need]:
        flag = request.ext_fields.get(flags, "0")
        # The header takes other texts for numbers, too, such as "4.0" and "-12".
        if not _is_number(flag) or int(flag) & SysFlag.TRANSACTION_ROLLBACK:  # both of its bits
            yield from of_group(request)
        text = request.ext_fields.get(properties, "")
        if TRANSACTION_PREPARED in text:
            stored = decode_properties(text.encode())
            if says_transaction(stored):
                yield Need(Kind.GROUP, stored.get(PRODUCER_GROUP, ""), Perm.PUB)

    return needs


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS_MAX


def _message(find: FindRecord, field: str, perm: Perm) -> Source:
    """The topic of the message at the physical offset in `field`."""

    def needs(request: RemotingCommand) -> Iterator[Need]:
        text = request.ext_fields.get(field, "")
        record = find(int(text)) if _is_number(text) else None
        if record is None:
            # The same answer whether there is no message or one of another account.
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no message at {field} {text[:20]!r}")
        topic = record.topic
        if topic in NOT_FOR_CONSUMERS:  # the broker has set the property
            topic = record.properties.get(REAL_TOPIC, topic)
        yield topic_need(topic, perm)

    return needs


def _heartbeat(request: RemotingCommand) -> Iterator[Need]:
    check_body_size(request, HEARTBEAT_MAX)
    for consumer in HeartbeatData.decode(request.body).consumer_data_set:
        yield Need(Kind.GROUP, consumer.group_name, Perm.SUB)
        for subscription in consumer.subscription_data_set:
            yield topic_need(subscription.topic, Perm.SUB)


def _locks(request: RemotingCommand) -> Iterator[Need]:
    check_body_size(request, LOCK_BODY_MAX)
    body = LockBatchRequestBody.decode(request.body)
    yield Need(Kind.GROUP, body.consumer_group, Perm.SUB)
    for topic in {queue.topic for queue in body.mq_set}:
        yield topic_need(topic, Perm.SUB)


def _client_config(request: RemotingCommand) -> Iterator[Need]:
    check_body_size(request, HEARTBEAT_MAX)
    body = CheckClientRequestBody.decode(request.body)
    yield Need(Kind.GROUP, body.group, Perm.SUB)
    if body.subscription_data is not None:
        yield topic_need(body.subscription_data.topic, Perm.SUB)
