"""Signs requests for brokers with access control (RocketMQ: AclClientRPCHook,
SessionCredentials, AclUtils)."""

import base64
import hashlib
import hmac

import msgspec

from congreve.remoting.messages.command import RemotingCommand

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Access key and secret of a client, for brokers with ``aclEnable=true`` (RocketMQ:
    SessionCredentials)."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"

    def sign(self, request: RemotingCommand) -> None:
        """Add the signature fields: HmacSHA1 over the fields' values in order of their names,
        then the body."""
        fields = request.ext_fields
        fields.pop(SIGNATURE, None)
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        content = "".join(value for _, value in sorted(fields.items())).encode() + request.body
        digest = hmac.digest(self.secret_key.encode(), content, hashlib.sha1)
        fields[SIGNATURE] = base64.b64encode(digest).decode()
