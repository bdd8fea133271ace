"""The gate in front of the handlers: signature, then permission, then the handler.

(RocketMQ: the RPCHook of BrokerController.initialAcl, PlainPermissionManager.validate.)
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import filterfalse

from congreve.base.errors import CongreveError
from congreve.broker.accounts.accounts import Account, Accounts, Kind, Need, Perm
from congreve.broker.accounts.audit import AuditLog
from congreve.broker.accounts.errors import AccessDeniedError
from congreve.broker.accounts.permissions import Rule
from congreve.broker.errors import BrokerError
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY, is_signed
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Answer, Handler
from congreve.remoting.transport.peer_log import PeerLog


class Gate:
    """Passes requests to their handlers if the current accounts permit them."""

    def __init__(
        self,
        accounts: Callable[[], Accounts],
        rules: Mapping[int, Rule],
        audit: AuditLog,
        peer_log: PeerLog,
    ) -> None:
        self._accounts = accounts
        self._rules = rules
        self._audit = audit
        self._peer_log = peer_log

    def guard(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers behind the gate. Raises BrokerError for a code without a rule."""
        missing = handlers.keys() - self._rules.keys()
        if missing:
            raise BrokerError(f"request codes without a rule: {sorted(map(int, missing))}")
        return {
            code: self._guarded(self._rules[code], handler) for code, handler in handlers.items()
        }

    def refusal(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """The answer to a request that may not pass; None when it may."""
        try:
            self._check(self._rules[request.code], request, connection)
        except CongreveError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        return None

    def _guarded(self, rule: Rule, handler: Handler) -> Handler:
        def guarding(
            request: RemotingCommand, connection: Connection
        ) -> Answer | Awaitable[Answer]:
            try:
                access_key = self._check(rule, request, connection)
            except CongreveError as error:
                return self._refused(rule, request, connection, error)
            if rule.admin and not rule.routine:
                return self._audited(rule, access_key, handler, request, connection)
            return handler(request, connection)

        return guarding

    def _refused(
        self, rule: Rule, request: RemotingCommand, connection: Connection, error: CongreveError
    ) -> RemotingCommand:
        self._peer_log.refused(connection, request.code, error)
        answer = request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        # Unknown senders must not fill the audit log; the rate-limited log above has them.
        if rule.admin and isinstance(error, AccessDeniedError) and error.access_key is not None:
            self._audit.note(
                error.access_key, request, connection, answer, with_body=not rule.secret
            )
        return answer

    async def _audited(
        self,
        rule: Rule,
        access_key: str | None,
        handler: Handler,
        request: RemotingCommand,
        connection: Connection,
    ) -> Answer:
        answer = None
        try:
            found = handler(request, connection)
            answer = await found if inspect.isawaitable(found) else found
            return answer
        finally:
            self._audit.note(access_key, request, connection, answer, with_body=not rule.secret)

    def _check(self, rule: Rule, request: RemotingCommand, connection: Connection) -> str | None:
        """The access key of a request that may pass, None from a white address.

        Raises AccessDeniedError, and CongreveError for a malformed request.
        """
        accounts, address = self._accounts(), connection.peer[0]
        if rule.open or accounts.is_white(address):
            return None
        account = _sender(accounts, request, connection)
        if rule.admin:
            if not account.admin:
                raise AccessDeniedError(
                    f"Need admin permission for request code={request.code}, but "
                    f"accessKey={account.access_key} is not",
                    account.access_key,
                )
        else:
            needs: Iterable[Need] = rule.needs(request)
            if connection.speaks_http2:
                needs = filterfalse(_is_of_producers, needs)
            lacking = account.lacks(needs, address)
            if lacking is not None:
                raise AccessDeniedError(f"No default permission for {lacking}")
        return account.access_key


def _is_of_producers(need: Need) -> bool:
    """Producers of gRPC clients have no groups: the topic stands for one."""
    return need.kind is Kind.GROUP and need.perm is Perm.PUB


def _sender(accounts: Accounts, request: RemotingCommand, connection: Connection) -> Account:
    key = request.ext_fields.get(ACCESS_KEY)
    if not key:
        raise AccessDeniedError("No accessKey is configured")
    account = accounts.by_key.get(key)
    if account is None:
        raise AccessDeniedError(f"No acl config for {key[:64]}")
    # broker/grpc has checked the signature of a call, and made this request for it.
    if not connection.speaks_http2 and not is_signed(request, account.secret_key):
        raise AccessDeniedError(f"Check signature failed for accessKey={key}")
    return account
