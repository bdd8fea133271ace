"""A broker's certificate is replaced while producers send over TLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

from harness.certificates import Authority
from harness.eventually import eventually

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.client import Message, Producer
from congreve.namesrv.server import NameServer
from congreve.remoting.tls.certificates import ServerCertificates, client_context
from congreve.remoting.tls.settings import ClientTls, ServerTls

PRODUCERS = 4


def trusting(*authorities: Authority) -> ssl.SSLContext:
    context = client_context(ClientTls(trust_cert_path=str(authorities[0].path)))
    for other in authorities[1:]:
        context.load_verify_locations(other.path)
    return context


async def test_no_send_fails_and_no_connection_is_lost(tmp_path: Path) -> None:
    old, new, third = (Authority(tmp_path / name, name) for name in ("old", "new", "third"))
    certificate, key = old.issue("server")
    new_certificate, new_key = new.issue("server")
    names_certificate, names_key = third.issue("names")
    of_names = ServerTls(cert_path=str(names_certificate), key_path=str(names_key))
    async with NameServer(port=0, certificates=ServerCertificates(of_names)) as names:
        broker = Broker(
            BrokerConfig().changed(
                {
                    "storePathRootDir": str(tmp_path / "store"),
                    "bindAddress": "127.0.0.1",
                    "brokerIP1": "127.0.0.1",
                    "listenPort": "0",
                    "haListenPort": "-1",
                    "flushDiskType": "ASYNC_FLUSH",
                    "namesrvAddr": names.address,
                    "tlsServerCertPath": str(certificate),
                    "tlsServerKeyPath": str(key),
                }
            )
        )
        async with broker, Sending(names.address, trusting(old, third)) as sending:
            await sending.sent_more()
            before = set(broker.ports.guard.connections)
            shutil.copy(new_certificate, certificate)
            await sending.sent_more()
            shutil.copy(new_key, key)
            counted = broker.ports.certificates
            assert counted is not None
            await eventually(lambda: counted.replaced_count == 1)
            await sending.sent_more()
            assert set(broker.ports.guard.connections) == before
            async with Producer(names.address, group="new", ssl=trusting(new, third)) as producer:
                await producer.send(Message(topic="orders", body=b"new"))


class Sending:
    """Producers that send until the end; a failed send fails the test."""

    def __init__(self, namesrv: str, context: ssl.SSLContext) -> None:
        self._producers = [
            Producer(namesrv, group=f"g{number}", ssl=context, retries=0)
            for number in range(PRODUCERS)
        ]
        self._sent = [0] * PRODUCERS
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Sending:
        for number, producer in enumerate(self._producers):
            await producer.__aenter__()
            self._tasks.append(asyncio.create_task(self._send(number, producer)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for producer in self._producers:
            await producer.__aexit__(None, None, None)
        failed = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
        assert not failed, failed

    async def _send(self, number: int, producer: Producer) -> None:
        while True:
            await producer.send(Message(topic="orders", body=b"x" * 100))
            self._sent[number] += 1
            await asyncio.sleep(0)

    async def sent_more(self) -> None:
        """Return when each producer has sent 20 more messages."""
        wanted = [sent + 20 for sent in self._sent]
        await eventually(
            lambda: (
                any(task.done() for task in self._tasks)
                or all(sent >= least for sent, least in zip(self._sent, wanted, strict=True))
            )
        )
