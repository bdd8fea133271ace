"""Who makes a call, and whether the accounts permit it (docs/accounts.md).

(RocketMQ 5: AuthenticationPipeline, AuthorizationPipeline.)
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from congreve.base.limited_log import LimitedLog
from congreve.broker.accounts.accounts import Account, Accounts, Kind, Need, Perm, topic_need
from congreve.broker.accounts.permissions import EITHER
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.remoting.lanes.call import CallField

NAME_SHOWN = 64
"""Characters of an unknown account that a refusal shows."""


class Authorization(NamedTuple):
    """What the header `authorization` says (RocketMQ 5: DefaultAuthenticationContextBuilder)."""

    access_key: str
    signature: str

    @classmethod
    def read(cls, header: str) -> "Authorization":
        """Raises CallRefusedError for a text of another form."""
        _, blank, text = header.partition(" ")
        if not blank:
            raise _unauthorized("authentication header is incorrect.")
        items: dict[str, str] = {}
        for item in text.split(","):
            name, equals, value = item.strip(" \t").partition("=")
            if not equals:
                raise _unauthorized("authentication header is incorrect.")
            items[name] = value
        # Go's client adds a region and a service: "key/region/RocketMQ".
        return cls(items.get("Credential", "").partition("/")[0], items.get("Signature", ""))


class CallAccess:
    """Checks calls against the current accounts, as `broker/accounts/gate.py` checks requests.

    The signature is of the header `x-mq-date-time`. `accounts` is None without aclEnable.
    (RocketMQ 5: AuthenticationPipeline, AuthorizationPipeline.)
    """

    def __init__(self, accounts: Callable[[], Accounts] | None, log: LimitedLog) -> None:
        self._accounts = accounts
        self._log = log

    def admit(self, call: GrpcCall, needs: Iterable[Need]) -> None:
        """Set the access key of a call that may pass. Raises CallRefusedError."""
        if self._accounts is None:
            return
        accounts, address = self._accounts(), call.connection.peer[0]
        if accounts.is_white(address):
            return
        try:
            account = _signed_by(accounts, call)
            lacking = account.lacks(needs, address)
            if lacking is not None:
                raise _unauthorized(
                    f"User:{account.access_key} has no permission to access "
                    f"{lacking.kind.value.capitalize()}:{lacking.name} from {address}, "
                    "the decision is deny."
                )
        except CallRefusedError as refused:
            self._log.warning(
                "%r: %s refused: %s", call.connection, call.fields.get(CallField.PATH), refused
            )
            raise
        call.access_key = account.access_key


def _signed_by(accounts: Accounts, call: GrpcCall) -> Account:
    header = call.fields.get(CallField.AUTHORIZATION, "")
    if not header:
        raise _unauthorized("username cannot be null.")
    key, given = Authorization.read(header)
    if not key:
        raise _unauthorized("username cannot be null.")
    signed = call.fields.get(CallField.DATE_TIME, "")
    if not signed:
        raise _unauthorized("datetime is null.")
    account = accounts.by_key.get(key)
    if account is None:
        raise _unauthorized(f"User:{key[:NAME_SHOWN]} is not found.")
    wanted = hmac.new(account.secret_key.encode(), signed.encode(), hashlib.sha1).hexdigest()
    if not hmac.compare_digest(given.lower().encode(), wanted.encode()):
        raise _unauthorized("check signature failed.")
    return account


def _unauthorized(text: str) -> CallRefusedError:
    return CallRefusedError(Code.UNAUTHORIZED, text)


# --- what calls need


def route_needs(request: Any) -> Iterable[Need]:
    """Of a request that names a topic which is produced to or consumed from."""
    yield topic_need(request.topic.name, EITHER)


def send_needs(request: Any) -> Iterable[Need]:
    """Of a SendMessageRequest."""
    for topic in {message.topic.name for message in request.messages}:
        yield topic_need(topic, Perm.PUB)


def produce_needs(request: Any) -> Iterable[Need]:
    """Of a request that names a topic which is produced to."""
    yield topic_need(request.topic.name, Perm.PUB)


def receive_needs(request: Any) -> Iterable[Need]:
    """Of a request that names a group and a queue which it consumes from."""
    yield from _consume(request.group.name, request.message_queue.topic.name)


def queue_needs(request: Any) -> Iterable[Need]:
    """Of a request that names a queue which is produced to or consumed from."""
    yield topic_need(request.message_queue.topic.name, EITHER)


def consume_needs(request: Any) -> Iterable[Need]:
    """Of a request that names a group and a topic which it consumes from."""
    yield from _consume(request.group.name, request.topic.name)


def client_needs(request: Any) -> Iterable[Need]:
    """Of a request about a client, which names the group if it consumes."""
    if request.group.name:
        yield Need(Kind.GROUP, request.group.name, Perm.SUB)


def settings_needs(settings: Any) -> Iterable[Need]:
    """Of the Settings that a client sends."""
    for topic in settings.publishing.topics:
        yield topic_need(topic.name, Perm.PUB)
    if settings.HasField("subscription"):
        yield Need(Kind.GROUP, settings.subscription.group.name, Perm.SUB)
        for entry in settings.subscription.subscriptions:
            yield topic_need(entry.topic.name, Perm.SUB)


def _consume(group: str, topic: str) -> Iterable[Need]:
    yield Need(Kind.GROUP, group, Perm.SUB)
    yield topic_need(topic, Perm.SUB)
