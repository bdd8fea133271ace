"""Signatures, compared with values of openssl, and their check."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import Credentials, is_signed

texts = st.text(max_size=20)


def test_a_signature_equals_the_known_one() -> None:
    request = RemotingCommand(code=1, ext_fields={"b": "2", "a": "1"}, body=b"body")
    Credentials(access_key="k", secret_key="s").sign(request)
    # printf 'k12body' | openssl dgst -sha1 -hmac s -binary | base64
    assert request.ext_fields["Signature"] == "zVS5z+/RDNRk0FpuCIgS+Ie4F3s="


def test_signing_again_gives_the_same_signature() -> None:
    request = RemotingCommand(code=1, ext_fields={"a": "1"}, body=b"body")
    credentials = Credentials(access_key="k", secret_key="s")
    credentials.sign(request)
    first = dict(request.ext_fields)
    credentials.sign(request)
    assert request.ext_fields == first


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(Credentials(access_key="k", secret_key="hidden"))


@given(st.dictionaries(texts, texts, max_size=6), st.binary(max_size=40), texts)
def test_a_signed_request_is_accepted_after_encoding_and_decoding(
    fields: dict[str, str], body: bytes, secret: str
) -> None:
    request = RemotingCommand(code=10, ext_fields=fields, body=body)
    Credentials(access_key="key", secret_key=secret).sign(request)
    got = RemotingCommand.decode(request.encode())
    assert is_signed(got, secret)
    assert not is_signed(got, secret + "x")


@pytest.mark.parametrize("change", ["value", "field", "body", "signature", "none"])
def test_the_signature_of_a_changed_request_is_invalid(change: str) -> None:
    request = RemotingCommand(code=10, ext_fields={"topic": "T", "x": "1"}, body=b"body")
    Credentials(access_key="key", secret_key="secret").sign(request)
    assert is_signed(request, "secret")
    if change == "value":
        request.ext_fields["topic"] = "U"
    elif change == "field":
        request.ext_fields["more"] = "1"
    elif change == "body":
        request.body = b"bodY"
    elif change == "signature":
        request.ext_fields["Signature"] = "\ud83d\ude00"
    else:
        del request.ext_fields["Signature"]
    assert not is_signed(request, "secret")


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_flag_of_a_query_by_unique_key_may_be_signed_or_not(when: str) -> None:
    request = RemotingCommand(code=12, ext_fields={"topic": "T", "key": "1"})
    credentials = Credentials(access_key="key", secret_key="secret")
    if when == "before":  # as Java clients do
        fields = {**request.ext_fields, "AccessKey": "key", "_UNIQUE_KEY_QUERY": "true"}
        content = "".join(fields[name] for name in sorted(fields))
        digest = hmac.digest(b"secret", content.encode(), "sha1")
        request.ext_fields = {**fields, "Signature": base64.b64encode(digest).decode()}
    else:
        credentials.sign(request)
        request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    assert is_signed(request, "secret")


def test_our_signature_leaves_out_the_field_that_brokers_leave_out() -> None:
    """RocketMQ's brokers compute it without the field, whenever the client added it."""
    signatures = set()
    for extra in ({}, {"_UNIQUE_KEY_QUERY": "true"}):
        request = RemotingCommand(code=12, ext_fields={"key": "k", **extra})
        Credentials(access_key="account", secret_key="secret").sign(request)
        signatures.add(request.ext_fields["Signature"])
        assert is_signed(request, "secret")
    assert len(signatures) == 1
