"""Every request code, one row each, with what the broker and the name server need to know of it.

The gates of accounts and quotas, the VIP port and the table in docs/compatibility.md are made from
these rows. A code without a row has no handler: the server does not start. Where a row asks for
more than 4.9.4, docs/accounts.md says so. (RocketMQ: RequestCode, PlainAccessValidator.)
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from congreve.broker.accounts.accounts import Perm
from congreve.broker.accounts.permissions import (
    EITHER,
    FindRecord,
    OfAssignment,
    OfBatchAck,
    OfClientConfig,
    OfGroup,
    OfHalfMessage,
    OfHeartbeat,
    OfLocks,
    OfMessage,
    OfPopped,
    OfTopic,
    Rule,
    Source,
)
from congreve.broker.quotas.gate import Quota
from congreve.records.message.topics import NOT_FOR_CONSUMERS
from congreve.remoting.messages import admin_headers as admin
from congreve.remoting.messages import headers, pop_headers, users
from congreve.remoting.messages.codes import RequestCode as Code
from congreve.remoting.messages.header import Header


class Request(NamedTuple):
    """One request code of one server.

    `header` has its fields, None if it has none. The VIP port does not serve what is not `vip`.
    """

    code: Code
    header: type[Header] | None
    rule: Rule = Rule()
    quota: Quota | None = None
    vip: bool = True


_TOPIC, _SHORT_TOPIC = OfTopic("topic", Perm.PUB), OfTopic("b", Perm.PUB)
_READ, _USED = OfTopic("topic", Perm.SUB), OfTopic("topic", EITHER)
_GROUP = OfGroup("consumerGroup")
_HALF, _SHORT_HALF = (
    OfHalfMessage("sysFlag", "producerGroup", "properties"),
    OfHalfMessage("f", "a", "i"),
)
_ADMIN = Rule(admin=True)
_SECRET = Rule(admin=True, secret=True)
# A slave or a broker repeats these: their lines in the audit log would hide all others.
_ROUTINE = Rule(admin=True, routine=True)


def _needs(*sources: Source) -> Rule:
    return Rule(sources)


REQUESTS = (
    # --- producers
    Request(Code.SEND_MESSAGE, headers.SendMessageRequestHeader, _needs(_TOPIC, _HALF), Quota.SEND),
    Request(
        Code.SEND_MESSAGE_V2,
        headers.SendMessageRequestHeaderV2,
        _needs(_SHORT_TOPIC, _SHORT_HALF),
        Quota.SEND_V2,
    ),
    Request(
        Code.SEND_BATCH_MESSAGE,
        headers.SendMessageRequestHeaderV2,
        _needs(_SHORT_TOPIC, _SHORT_HALF),
        Quota.SEND_V2,
    ),
    Request(Code.SEND_REPLY_MESSAGE, headers.SendMessageRequestHeader, _needs(_TOPIC), Quota.SEND),
    Request(
        Code.SEND_REPLY_MESSAGE_V2,
        headers.SendMessageRequestHeaderV2,
        _needs(_SHORT_TOPIC),
        Quota.SEND_V2,
    ),
    Request(Code.RECALL_MESSAGE, admin.RecallMessageRequestHeader, _needs(_TOPIC)),
    Request(
        Code.END_TRANSACTION,
        headers.EndTransactionRequestHeader,
        _needs(OfMessage("commitLogOffset", Perm.PUB), OfGroup("producerGroup", Perm.PUB)),
        Quota.END,
    ),
    # --- consumers
    Request(Code.PULL_MESSAGE, headers.PullMessageRequestHeader, _needs(_READ, _GROUP), vip=False),
    Request(
        Code.LITE_PULL_MESSAGE, headers.PullMessageRequestHeader, _needs(_READ, _GROUP), vip=False
    ),
    Request(
        Code.QUERY_CONSUMER_OFFSET, headers.QueryConsumerOffsetRequestHeader, _needs(_READ, _GROUP)
    ),
    Request(
        Code.UPDATE_CONSUMER_OFFSET,
        headers.UpdateConsumerOffsetRequestHeader,
        _needs(_READ, _GROUP),
    ),
    Request(
        Code.POP_MESSAGE, pop_headers.PopMessageRequestHeader, _needs(_READ, _GROUP), vip=False
    ),
    Request(Code.ACK_MESSAGE, pop_headers.AckMessageRequestHeader, _needs(OfPopped())),
    Request(Code.BATCH_ACK_MESSAGE, None, _needs(OfBatchAck())),
    Request(
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        pop_headers.ChangeInvisibleTimeRequestHeader,
        _needs(OfPopped()),
    ),
    Request(
        Code.NOTIFICATION, pop_headers.NotificationRequestHeader, _needs(_READ, _GROUP), vip=False
    ),
    Request(Code.POLLING_INFO, pop_headers.PollingInfoRequestHeader, _needs(_READ, _GROUP)),
    Request(Code.HEART_BEAT, None, _needs(OfHeartbeat()), Quota.HEARTBEAT),
    Request(
        Code.UNREGISTER_CLIENT,
        headers.UnregisterClientRequestHeader,
        _needs(OfGroup("consumerGroup", optional=True)),
    ),
    Request(
        Code.CONSUMER_SEND_MSG_BACK,
        headers.ConsumerSendMsgBackRequestHeader,
        _needs(OfGroup("group"), OfMessage("offset", Perm.SUB)),
        Quota.SENT_BACK,
    ),
    Request(
        Code.GET_CONSUMER_LIST_BY_GROUP, headers.GetConsumerListByGroupRequestHeader, _needs(_GROUP)
    ),
    Request(Code.LOCK_BATCH_MQ, None, _needs(OfLocks())),
    Request(Code.UNLOCK_BATCH_MQ, None, _needs(OfLocks())),
    Request(Code.QUERY_ASSIGNMENT, None, _needs(OfAssignment())),
    Request(Code.CHECK_CLIENT_CONFIG, None, _needs(OfClientConfig())),
    # --- queries
    Request(Code.QUERY_MESSAGE, headers.QueryMessageRequestHeader, _needs(_READ)),
    Request(
        Code.VIEW_MESSAGE_BY_ID,
        headers.ViewMessageRequestHeader,
        _needs(OfMessage("offset", Perm.SUB)),
    ),
    Request(Code.SEARCH_OFFSET_BY_TIMESTAMP, headers.SearchOffsetRequestHeader, _needs(_USED)),
    Request(Code.GET_MAX_OFFSET, headers.QueueRequestHeader, _needs(_USED)),
    Request(Code.GET_MIN_OFFSET, headers.QueueRequestHeader, _needs(_USED)),
    Request(Code.GET_EARLIEST_MSG_STORETIME, headers.QueueRequestHeader, _needs(_USED)),
    Request(Code.GET_TOPIC_STATS_INFO, admin.GetTopicStatsInfoRequestHeader, _needs(_USED)),
    Request(
        Code.QUERY_CONSUME_QUEUE,
        admin.QueryConsumeQueueRequestHeader,
        _needs(_READ, OfGroup("consumerGroup", optional=True)),
    ),
    Request(
        Code.QUERY_CONSUME_TIME_SPAN,
        admin.QueryConsumeTimeSpanRequestHeader,
        _needs(_READ, OfGroup("group")),
    ),
    Request(
        Code.GET_CONSUME_STATS,
        admin.GetConsumeStatsRequestHeader,
        _needs(_GROUP, OfTopic("topic", Perm.SUB, optional=True)),
    ),
    Request(
        Code.GET_CONSUMER_CONNECTION_LIST,
        admin.GetConsumerConnectionListRequestHeader,
        _needs(_GROUP),
    ),
    # Clients ask for the route of a topic that does not exist yet, too.
    Request(Code.GET_ROUTEINFO_BY_TOPIC, admin.GetRouteInfoRequestHeader),
    # --- administrators
    Request(Code.UPDATE_AND_CREATE_TOPIC, admin.CreateTopicRequestHeader, _ADMIN),
    Request(Code.UPDATE_AND_CREATE_TOPIC_LIST, None, _ADMIN),
    Request(Code.GET_TOPIC_CONFIG, admin.GetTopicConfigRequestHeader, _needs(_USED)),
    Request(Code.DELETE_TOPIC_IN_BROKER, admin.DeleteTopicRequestHeader, _ADMIN),
    Request(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, _ADMIN),
    Request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, _ADMIN),
    Request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, _ADMIN),
    Request(
        Code.GET_SUBSCRIPTIONGROUP_CONFIG,
        admin.GetSubscriptionGroupConfigRequestHeader,
        _needs(OfGroup("group")),
    ),
    Request(Code.SET_MESSAGE_REQUEST_MODE, None, _ADMIN),
    Request(Code.DELETE_SUBSCRIPTIONGROUP, admin.DeleteSubscriptionGroupRequestHeader, _ADMIN),
    Request(Code.GET_BROKER_CONSUME_STATS, admin.GetConsumeStatsInBrokerHeader, _ADMIN),
    Request(Code.QUERY_TOPIC_CONSUME_BY_WHO, admin.QueryTopicConsumeByWhoRequestHeader, _ADMIN),
    Request(Code.CLONE_GROUP_OFFSET, admin.CloneGroupOffsetRequestHeader, _ADMIN),
    Request(Code.QUERY_CORRECTION_OFFSET, admin.QueryCorrectionOffsetHeader, _ADMIN),
    Request(Code.INVOKE_BROKER_TO_RESET_OFFSET, admin.ResetOffsetRequestHeader, _ADMIN),
    Request(
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, admin.GetConsumerStatusRequestHeader, _ADMIN
    ),
    Request(
        Code.GET_PRODUCER_CONNECTION_LIST, admin.GetProducerConnectionListRequestHeader, _ADMIN
    ),
    Request(Code.GET_ALL_PRODUCER_INFO, None, _ADMIN),
    Request(Code.GET_CONSUMER_RUNNING_INFO, admin.GetConsumerRunningInfoRequestHeader, _ADMIN),
    Request(Code.CONSUME_MESSAGE_DIRECTLY, admin.ConsumeMessageDirectlyResultRequestHeader, _ADMIN),
    Request(Code.RESUME_CHECK_HALF_MESSAGE, admin.ResumeCheckHalfMessageRequestHeader, _ADMIN),
    Request(Code.GET_BROKER_CONFIG, None, _ADMIN),
    Request(Code.UPDATE_BROKER_CONFIG, None, _ADMIN),
    Request(Code.GET_BROKER_HA_STATUS, None, _ADMIN),
    Request(Code.GET_BROKER_EPOCH_CACHE, None, _ADMIN),
    Request(Code.COUNT_DELAYED_MESSAGES, admin.DelayedMessagesRequestHeader, _ADMIN),
    Request(Code.LIST_DELAYED_MESSAGES, admin.DelayedMessagesRequestHeader, _ADMIN),
    Request(Code.VIEW_BROKER_STATS_DATA, admin.ViewBrokerStatsDataRequestHeader, _ADMIN),
    Request(Code.CLEAN_EXPIRED_CONSUMEQUEUE, None, _ADMIN),
    Request(Code.DELETE_EXPIRED_COMMITLOG, None, _ADMIN),
    Request(Code.CLEAN_UNUSED_TOPIC, None, _ADMIN),
    Request(Code.UPDATE_AND_CREATE_ACL_CONFIG, admin.CreateAccessConfigRequestHeader, _ADMIN),
    Request(Code.DELETE_ACL_CONFIG, admin.DeleteAccessConfigRequestHeader, _ADMIN),
    Request(Code.GET_BROKER_CLUSTER_ACL_INFO, None, _ADMIN),
    Request(
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        admin.UpdateGlobalWhiteAddrsConfigRequestHeader,
        _ADMIN,
    ),
    Request(Code.GET_BROKER_CLUSTER_ACL_CONFIG, None, _ADMIN),
    Request(Code.AUTH_CREATE_USER, users.UserRequestHeader, _SECRET),
    Request(Code.AUTH_UPDATE_USER, users.UserRequestHeader, _SECRET),
    Request(Code.AUTH_DELETE_USER, users.UserRequestHeader, _ADMIN),
    Request(Code.AUTH_GET_USER, users.UserRequestHeader, _ADMIN),
    Request(Code.AUTH_LIST_USER, users.ListUsersRequestHeader, _ADMIN),
    Request(Code.AUTH_CREATE_ACL, users.AclRequestHeader, _ADMIN),
    Request(Code.AUTH_UPDATE_ACL, users.AclRequestHeader, _ADMIN),
    Request(Code.AUTH_DELETE_ACL, users.AclRequestHeader, _ADMIN),
    Request(Code.AUTH_GET_ACL, users.AclRequestHeader, _ADMIN),
    Request(Code.AUTH_LIST_ACL, users.ListAclsRequestHeader, _ADMIN),
    # --- slaves
    Request(Code.GET_ALL_TOPIC_CONFIG, None, _ROUTINE),
    Request(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None, _ROUTINE),
    Request(Code.GET_ALL_CONSUMER_OFFSET, None, _ROUTINE),
    Request(Code.GET_ALL_DELAY_OFFSET, None, _ROUTINE),
    Request(Code.GET_ALL_MESSAGE_REQUEST_MODE, None, _ROUTINE),
    Request(Code.GET_BROKER_RUNTIME_INFO, None, _ROUTINE),
    Request(Code.AWAIT_TABLE_CHANGE, headers.AwaitTableChangeRequestHeader, _ROUTINE),
)
"""What a broker serves."""

NAME_SERVER_REQUESTS = (
    Request(Code.GET_ROUTEINFO_BY_TOPIC, admin.GetRouteInfoRequestHeader, Rule(open=True)),
    # --- brokers
    Request(Code.REGISTER_BROKER, admin.RegisterBrokerRequestHeader, _ROUTINE),
    Request(Code.UNREGISTER_BROKER, admin.UnregisterBrokerRequestHeader, _ROUTINE),
    Request(Code.QUERY_DATA_VERSION, admin.QueryDataVersionRequestHeader, _ROUTINE),
    # --- any account
    Request(Code.GET_BROKER_CLUSTER_INFO, None),
    Request(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
    Request(Code.GET_TOPICS_BY_CLUSTER, admin.GetTopicsByClusterRequestHeader),
    Request(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, None),
    Request(Code.GET_UNIT_TOPIC_LIST, None),
    Request(Code.GET_HAS_UNIT_SUB_TOPIC_LIST, None),
    Request(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None),
    Request(Code.GET_KV_CONFIG, admin.GetKVConfigRequestHeader),
    Request(Code.GET_KVLIST_BY_NAMESPACE, admin.GetKVListByNamespaceRequestHeader),
    # --- administrators
    Request(Code.PUT_KV_CONFIG, admin.PutKVConfigRequestHeader, _ADMIN),
    Request(Code.DELETE_KV_CONFIG, admin.GetKVConfigRequestHeader, _ADMIN),
    Request(Code.DELETE_TOPIC_IN_NAMESRV, admin.DeleteTopicFromNamesrvRequestHeader, _ADMIN),
    Request(Code.WIPE_WRITE_PERM_OF_BROKER, admin.WipeWritePermOfBrokerRequestHeader, _ADMIN),
    Request(Code.ADD_WRITE_PERM_OF_BROKER, admin.WipeWritePermOfBrokerRequestHeader, _ADMIN),
    Request(Code.UPDATE_NAMESRV_CONFIG, None, _ADMIN),
    Request(Code.GET_NAMESRV_CONFIG, None, _ADMIN),
)
"""What a name server serves."""

QUOTAS: Mapping[int, Quota] = {row.code: row.quota for row in REQUESTS if row.quota is not None}

NOT_ON_VIP = frozenset(row.code for row in REQUESTS if not row.vip)

OF_ADMINISTRATORS = frozenset(row.code for row in REQUESTS if row.rule.admin)


def rules(find: FindRecord, private: frozenset[str] = NOT_FOR_CONSUMERS) -> Mapping[int, Rule]:
    """What each request to a broker needs; `find` reads the messages to which requests refer.

    Only administrators read the topics in `private`.
    """
    return {
        row.code: msgspec.structs.replace(row.rule, find=find, private=private) for row in REQUESTS
    }


def name_server_rules() -> Mapping[int, Rule]:
    """What each request to a name server needs."""
    return {row.code: row.rule for row in NAME_SERVER_REQUESTS}
