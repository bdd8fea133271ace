"""Signatures of requests, for brokers with access control: the client signs, the broker checks.

A signature covers the values of the ext fields in order of their names, then the body; it covers
neither the names, the code, the opaque nor the flags. (RocketMQ: AclClientRPCHook,
SessionCredentials, AclUtils, AclSigner.)
"""

import base64
import hashlib
import hmac

import msgspec

from congreve.remoting.messages.command import RemotingCommand

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""Clients add this field of QUERY_MESSAGE before or after they sign, depending on their version.

RocketMQ's brokers leave it out of the signature, and so does sign().
"""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Access key and secret of a client, for brokers with ``aclEnable=true`` (RocketMQ:
    SessionCredentials)."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"

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
