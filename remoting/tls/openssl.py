"""The OpenSSL that Python's ssl module has loaded, for connections that lanes serve."""

import ctypes
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

from congreve.remoting.tls.errors import TlsError
from congreve.remoting.tls.sessions import alpn_callback
from congreve.remoting.tls.settings import ClientAuth, ServerTls

# Numbers of OpenSSL's headers, the same in its versions 1.1.1 and 3.
_CTRL_MODE, _CTRL_READ_AHEAD, _CTRL_MIN_PROTOCOL = 33, 41, 123
_PARTIAL_WRITE, _MOVING_BUFFER, _RELEASE_BUFFERS = 1, 2, 16
_IGNORE_UNEXPECTED_EOF, _NO_RENEGOTIATION = 1 << 7, 1 << 30
_VERIFY_PEER, _FAIL_IF_NO_PEER_CERT = 1, 2
_FILETYPE_PEM = 1
_OLDEST = (1, 1, 1)

_CALLED_BY_LANES = (
    *("SSL_new", "SSL_free", "SSL_set_fd", "SSL_set_accept_state", "SSL_read", "SSL_write"),
    *("SSL_get_error", "SSL_shutdown", "SSL_is_init_finished", "ERR_clear_error", "SSL_CTX_free"),
)
Signatures = Mapping[str, tuple[Any, tuple[Any, ...]]]
"""The result and the arguments of functions."""
_POINTER, _TEXT, _INT, _LONG = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_long
_SIGNATURES = {
    "TLS_server_method": (_POINTER, ()),
    "SSL_CTX_new": (_POINTER, (_POINTER,)),
    "SSL_CTX_free": (None, (_POINTER,)),
    "SSL_CTX_ctrl": (_LONG, (_POINTER, _INT, _LONG, _POINTER)),
    "SSL_CTX_set_options": (ctypes.c_uint64, (_POINTER, ctypes.c_uint64)),
    "SSL_CTX_set_default_passwd_cb_userdata": (None, (_POINTER, _TEXT)),
    "SSL_CTX_use_certificate_chain_file": (_INT, (_POINTER, _TEXT)),
    "SSL_CTX_use_PrivateKey_file": (_INT, (_POINTER, _TEXT, _INT)),
    "SSL_CTX_check_private_key": (_INT, (_POINTER,)),
    "SSL_CTX_load_verify_locations": (_INT, (_POINTER, _TEXT, _TEXT)),
    "SSL_CTX_set_verify": (None, (_POINTER, _INT, _POINTER)),
    "SSL_CTX_set_session_id_context": (_INT, (_POINTER, _TEXT, ctypes.c_uint)),
    "SSL_load_client_CA_file": (_POINTER, (_TEXT,)),
    "SSL_CTX_set_client_CA_list": (None, (_POINTER, _POINTER)),
    "SSL_CTX_set_alpn_select_cb": (None, (_POINTER, _POINTER, _POINTER)),
}


class OpenSsl:
    """Functions of OpenSSL's library; load_openssl() makes one (RocketMQ: TlsHelper).

    `addresses` has those that TlsSessions calls.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        _declare(library, _SIGNATURES)
        self.addresses = {name: _address(getattr(library, name)) for name in _CALLED_BY_LANES}

    def context(self, settings: ServerTls) -> int:
        """A new SSL_CTX with the certificate of `settings`, for TlsSessions.replace_context().

        Raises TlsError for a certificate or key that cannot be used.
        """
        library = self._library
        context = library.SSL_CTX_new(library.TLS_server_method())
        if not context:
            raise TlsError("no memory for a context of TLS")
        try:
            self._set_up(context, settings)
        except BaseException:
            library.SSL_CTX_free(context)
            library.ERR_clear_error()  # Python's ssl module would report them as its own
            raise
        return int(context)

    def _set_up(self, context: int, settings: ServerTls) -> None:
        library = self._library
        library.SSL_CTX_ctrl(context, _CTRL_MIN_PROTOCOL, ssl.TLSVersion.TLSv1_2, None)
        mode = _PARTIAL_WRITE | _MOVING_BUFFER | _RELEASE_BUFFERS
        library.SSL_CTX_ctrl(context, _CTRL_MODE, mode, None)
        library.SSL_CTX_ctrl(context, _CTRL_READ_AHEAD, 1, None)
        library.SSL_CTX_set_options(context, _IGNORE_UNEXPECTED_EOF | _NO_RENEGOTIATION)
        library.SSL_CTX_set_session_id_context(context, b"congreve", 8)
        library.SSL_CTX_set_alpn_select_cb(context, alpn_callback(), None)
        # OpenSSL reads the password while it loads the key, at once.
        password = settings.key_password.encode()
        library.SSL_CTX_set_default_passwd_cb_userdata(context, password)
        certificate, key = settings.cert_path.encode(), settings.key_path.encode()
        if (
            library.SSL_CTX_use_certificate_chain_file(context, certificate) != 1
            or library.SSL_CTX_use_PrivateKey_file(context, key, _FILETYPE_PEM) != 1
            or library.SSL_CTX_check_private_key(context) != 1
        ):
            raise TlsError(f"{settings.cert_path} and {settings.key_path} cannot be used")
        library.SSL_CTX_set_default_passwd_cb_userdata(context, None)
        if settings.client_auth != ClientAuth.NONE:
            authorities = settings.trust_cert_path.encode()
            names = library.SSL_load_client_CA_file(authorities)
            if library.SSL_CTX_load_verify_locations(context, authorities, None) != 1 or not names:
                raise TlsError(f"{settings.trust_cert_path} has no certificates that can be used")
            library.SSL_CTX_set_client_CA_list(context, names)
            required = settings.client_auth == ClientAuth.REQUIRE
            verify = _VERIFY_PEER | (_FAIL_IF_NO_PEER_CERT if required else 0)
            library.SSL_CTX_set_verify(context, verify, None)


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


@cache
def load_openssl() -> OpenSsl | None:
    """Python's OpenSSL; None if this Python hides it, or has another library."""
    if not ssl.OPENSSL_VERSION.startswith("OpenSSL ") or ssl.OPENSSL_VERSION_INFO < _OLDEST:
        return None
    try:
        return OpenSsl(_loaded())
    except (ImportError, AttributeError, OSError):
        return None


def crypto_library(signatures: Signatures) -> ctypes.CDLL | None:
    """Python's OpenSSL with these functions, by their results and arguments; None as
    load_openssl(), or if it has not all of them."""
    if load_openssl() is None:
        return None
    library = _loaded()
    try:
        _declare(library, signatures)
    except AttributeError:
        return None
    return library


def _loaded() -> ctypes.CDLL:
    import _ssl

    return ctypes.CDLL(_ssl.__file__)


def _declare(library: ctypes.CDLL, signatures: Signatures) -> None:
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
