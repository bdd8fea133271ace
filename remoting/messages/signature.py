"""Signatures of requests, for brokers with access control: the client signs, the broker checks.

A signature covers the values of the ext fields in order of their names, then the body; it covers
neither the names, the code, the opaque nor the flags. (RocketMQ: AclClientRPCHook,
SessionCredentials, AclUtils, AclSigner.)
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import msgspec

from congreve.remoting.messages.command import RemotingCommand

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"

ANTI_REPLAY = "AntiReplay"
"""A further signed field, with which a broker can tell a request from a copy of it."""

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""Clients add this field of QUERY_MESSAGE before or after they sign, depending on their version.

RocketMQ's brokers leave it out of the signature, and so does sign().
"""


class Numbered(NamedTuple):
    """The content of ANTI_REPLAY: when the request was signed (ms), and its number in a series."""

    time: int
    series: str
    number: int

    @classmethod
    def parse(cls, text: str) -> "Numbered | None":
        """Read ``TIME/SERIES/NUMBER``; None if the text is something else."""
        moment, _, rest = text.partition("/")
        series, _, number = rest.partition("/")
        if not (_is_number(moment) and 0 < len(series) <= SERIES_MAX and _is_number(number)):
            return None
        return cls(int(moment), series, int(number))


SERIES_MAX = 64
"""Characters of the name of a series."""
_DIGITS_MAX = 18


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class RequestNumbers:
    """Makes the values of ANTI_REPLAY; `series` is a unique name."""

    def __init__(self, now_ms: Callable[[], int] = _now_ms, series: str | None = None) -> None:
        self._now_ms = now_ms
        self._series = series or secrets.token_urlsafe(12)
        self._numbers = count(1)

    def next(self) -> str:
        """The value for the next request. Any thread may call it."""
        return f"{self._now_ms()}/{self._series}/{next(self._numbers)}"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Access key and secret of a client, for brokers with ``aclEnable=true`` (RocketMQ:
    SessionCredentials).

    With `replay_protection` requests are numbered, for a broker with ``aclReplayWindowMills``;
    other brokers ignore the numbers.
    """

    access_key: str
    secret_key: str
    security_token: str | None = None
    replay_protection: bool = False

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"

    def signer(self) -> Callable[[RemotingCommand], None]:
        """Signs the requests of one client."""
        if not self.replay_protection:
            return self.sign
        numbers = RequestNumbers()

        def sign(request: RemotingCommand) -> None:
            request.ext_fields[ANTI_REPLAY] = numbers.next()
            self.sign(request)

        return sign

    def sign(self, request: RemotingCommand) -> None:
        """Add the fields of the signature to a request; an earlier signature is replaced."""
        fields = request.ext_fields
        fields.pop(SIGNATURE, None)
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        signed = {name: text for name, text in fields.items() if name != _UNIQUE_KEY_QUERY}
        fields[SIGNATURE] = _signature(signed, request.body, self.secret_key)


def is_signed(request: RemotingCommand, secret_key: str) -> bool:
    """Whether the request has the signature that this secret gives."""
    fields = dict(request.ext_fields)
    given = fields.pop(SIGNATURE, "").encode("utf-8", "replace")
    if hmac.compare_digest(given, _signature(fields, request.body, secret_key).encode()):
        return True
    if fields.pop(_UNIQUE_KEY_QUERY, None) is None:
        return False
    return hmac.compare_digest(given, _signature(fields, request.body, secret_key).encode())


def _signature(fields: dict[str, str], body: bytes, secret_key: str) -> str:
    """HmacSHA1 of fields and body in base64; `fields` is without the signature."""
    content = "".join([fields[name] for name in sorted(fields)])
    # A text may hold half of a surrogate pair, which Java writes as a question mark.
    digest = hmac.new(secret_key.encode(), content.encode("utf-8", "replace"), hashlib.sha1)
    digest.update(body)
    return base64.b64encode(digest.digest()).decode()
