"""The client signs its requests."""

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
