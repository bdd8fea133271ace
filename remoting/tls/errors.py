"""Errors of TLS settings and certificates."""

from congreve.remoting.errors import RemotingError


class TlsError(RemotingError):
    """A setting of TLS, a certificate or a key cannot be used."""


class NotEncryptedError(TlsError):
    """A peer has begun without a TLS handshake where one is required."""
