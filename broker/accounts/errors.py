"""The error of access control."""

from congreve.broker.errors import RefusedError
from congreve.remoting.messages.codes import ResponseCode


class AccessDeniedError(RefusedError):
    """The sender is unknown, or lacks a permission (RocketMQ: AclException).

    `access_key` is that of the signature, if the signature is valid.
    """

    def __init__(self, text: str, access_key: str | None = None) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"AclException: {text}")
        self.access_key = access_key
