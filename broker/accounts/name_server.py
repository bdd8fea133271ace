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
from congreve.broker.accounts.requests import name_server_rules
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.peer_log import PeerLog


class NameServerAccess(FollowedAccounts):
    """The accounts of a name server, and the gate before its handlers."""

    def __init__(self, files: AccountFiles, clock: Clock) -> None:
        super().__init__(files)
        self._gate = Gate(lambda: self.now, name_server_rules(), AuditLog(clock), PeerLog())

    def guard(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers behind the gate. Raises BrokerError for a code without a rule."""
        return self._gate.guard(handlers)
