"""Signatures, compared with values of openssl."""

import base64
import hashlib
import hmac

from harness.fake_cluster import FakeCluster, stored

from congreve.client import Credentials, Message, Producer
from congreve.remoting.messages.command import RemotingCommand


def expected(request: RemotingCommand, secret: str) -> str:
    names = sorted(set(request.ext_fields) - {"Signature"})
    content = "".join(request.ext_fields[name] for name in names).encode() + request.body
    return base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()


async def test_every_request_is_signed_also_to_the_name_server_and_one_way() -> None:
    credentials = Credentials(access_key="key", secret_key="secret", security_token="token")
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[310] = stored
        async with Producer(cluster.address, group="pg", credentials=credentials) as producer:
            await producer.send(Message(topic="T", body=b"\x00\xff", properties={"ü": "ö"}))
            await producer.send_oneway(Message(topic="T", body=b"x"))
            await producer.heartbeat()
        requests = cluster.brokers["a"].requests
        assert {310, 34, 35} <= {request.code for request in requests}
        for request in requests:
            assert request.ext_fields["AccessKey"] == "key"
            assert request.ext_fields["SecurityToken"] == "token"
            assert request.ext_fields["Signature"] == expected(request, "secret")


def test_known_signature() -> None:
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
