"""A certificate that no authority has signed, for servers whose clients check none."""

import ctypes
import secrets
from collections.abc import Callable

from congreve.remoting.tls.openssl import crypto_library

VALID_S = 10 * 365 * 86_400
"""From yesterday on: the clocks of clients may be slow."""

_DAY_S, _X509_V3, _ASCII = 86_400, 2, 0x1001
_POINTER, _TEXT, _INT, _LONG = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_long
_SIGNATURES = {
    "EVP_PKEY_Q_keygen": (_POINTER, (_POINTER, _TEXT, _TEXT, _TEXT)),
    "EVP_PKEY_free": (None, (_POINTER,)),
    "EVP_sha256": (_POINTER, ()),
    "X509_new": (_POINTER, ()),
    "X509_free": (None, (_POINTER,)),
    "X509_set_version": (_INT, (_POINTER, _LONG)),
    "X509_get_serialNumber": (_POINTER, (_POINTER,)),
    "ASN1_INTEGER_set": (_INT, (_POINTER, _LONG)),
    "X509_getm_notBefore": (_POINTER, (_POINTER,)),
    "X509_getm_notAfter": (_POINTER, (_POINTER,)),
    "X509_gmtime_adj": (_POINTER, (_POINTER, _LONG)),
    "X509_set_pubkey": (_INT, (_POINTER, _POINTER)),
    "X509_get_subject_name": (_POINTER, (_POINTER,)),
    "X509_NAME_add_entry_by_txt": (_INT, (_POINTER, _TEXT, _INT, _TEXT, _INT, _INT, _INT)),
    "X509_set_issuer_name": (_INT, (_POINTER, _POINTER)),
    "X509_sign": (_INT, (_POINTER, _POINTER, _POINTER)),
    "BIO_new": (_POINTER, (_POINTER,)),
    "BIO_s_mem": (_POINTER, ()),
    "BIO_read": (_INT, (_POINTER, _POINTER, _INT)),
    "BIO_free": (_INT, (_POINTER,)),
    "PEM_write_bio_X509": (_INT, (_POINTER, _POINTER)),
    "PEM_write_bio_PrivateKey": (
        _INT,
        (_POINTER, _POINTER, _POINTER, _POINTER, _INT, _POINTER, _POINTER),
    ),
}
_PEM_MAX = 4_096


def self_signed(name: str) -> tuple[bytes, bytes] | None:
    """A new certificate for `name`, and its key, both as PEM; None without OpenSSL 3.

    (RocketMQ: TlsHelper, with tls.test.mode.enable.)
    """
    library = crypto_library(_SIGNATURES)
    if library is None:
        return None
    key = library.EVP_PKEY_Q_keygen(None, None, b"EC", b"P-256")
    certificate = library.X509_new()
    try:
        if not key or not certificate:
            return None
        library.X509_set_version(certificate, _X509_V3)
        serial = library.X509_get_serialNumber(certificate)
        library.ASN1_INTEGER_set(serial, secrets.randbelow(1 << 31))
        library.X509_gmtime_adj(library.X509_getm_notBefore(certificate), -_DAY_S)
        library.X509_gmtime_adj(library.X509_getm_notAfter(certificate), VALID_S)
        library.X509_set_pubkey(certificate, key)
        subject = library.X509_get_subject_name(certificate)
        library.X509_NAME_add_entry_by_txt(subject, b"CN", _ASCII, name.encode(), -1, -1, 0)
        library.X509_set_issuer_name(certificate, subject)
        if not library.X509_sign(certificate, key, library.EVP_sha256()):
            return None
        return (
            _pem(library, lambda bio: library.PEM_write_bio_X509(bio, certificate)),
            _pem(
                library,
                lambda bio: library.PEM_write_bio_PrivateKey(bio, key, None, None, 0, None, None),
            ),
        )
    finally:
        library.X509_free(certificate)
        library.EVP_PKEY_free(key)


def _pem(library: ctypes.CDLL, write: Callable[[int], int]) -> bytes:
    bio = library.BIO_new(library.BIO_s_mem())
    try:
        write(bio)
        text = ctypes.create_string_buffer(_PEM_MAX)
        size = library.BIO_read(bio, text, _PEM_MAX)
        return text.raw[: max(size, 0)]
    finally:
        library.BIO_free(bio)
