"""Access control of a name server (ours; RocketMQ's name server checks nothing).

Clients read routes without an account, as those of 4.9.4 do. Brokers register with the account of
an administrator, and only administrators change anything.
"""

from collections.abc import Mapping

from congreve.base.clock import Clock
from congreve.broker.accounts.audit import AuditLog
from congreve.broker.accounts.files import AccountFiles
from congreve.broker.accounts.followed import FollowedAccounts
from congreve.broker.accounts.gate import Gate
from congreve.broker.accounts.permissions import Rule
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.peer_log import PeerLog

_OPEN = (RequestCode.GET_ROUTEINFO_BY_TOPIC,)
_OF_BROKERS = (
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.QUERY_DATA_VERSION,
)
_OF_ACCOUNTS = (
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
)
_OF_ADMINISTRATORS = (
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.GET_NAMESRV_CONFIG,
)


def rules() -> Mapping[int, Rule]:
    """The rules of all request codes of a name server."""
    return {
        **dict.fromkeys(_OPEN, Rule(open=True)),
        **dict.fromkeys(_OF_BROKERS, Rule(admin=True, routine=True)),
        **dict.fromkeys(_OF_ACCOUNTS, Rule()),
        **dict.fromkeys(_OF_ADMINISTRATORS, Rule(admin=True)),
    }


class NameServerAccess(FollowedAccounts):
    """The accounts of a name server, and the gate before its handlers."""

    def __init__(self, files: AccountFiles, clock: Clock) -> None:
        super().__init__(files)
        self._gate = Gate(lambda: self.now, rules(), AuditLog(clock), PeerLog())

    def guard(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers behind the gate. Raises BrokerError for a code without a rule."""
        return self._gate.guard(handlers)
