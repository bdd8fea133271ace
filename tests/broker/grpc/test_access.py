"""Signatures and permissions of gRPC calls: the accounts of docs/accounts.md."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker.serving.test_fastpath import CREATE
from harness.eventually import eventually
from harness.wire import Wire
from hypothesis import example, given
from hypothesis import strategies as st

from congreve.base.limited_log import LimitedLog
from congreve.broker.accounts.account_table import AccountTable
from congreve.broker.accounts.accounts import Account, Accounts, Perm, topic_need
from congreve.broker.broker import Broker
from congreve.broker.grpc.access import CallAccess
from congreve.broker.grpc.codecs.call_accounts import CallAccounts, producer_of
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.remoting.lanes.call import CallField
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.signatures.hmac_sha1 import load_sha1
from remoting.http2.built import needs_http2

from ..guarded import FILE, SECRET
from .clients import METADATA, TRANSACTION, Client, client
from .test_door import config_of, stored_by_lanes

pytestmark = needs_http2

DATE = "20200101T120000Z"


def authorization(key: str, secret: str = SECRET, date: str = DATE, *, upper: bool = False) -> str:
    signature = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest()
    signature = signature.upper() if upper else signature
    return f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"


def signed(key: str, secret: str = SECRET) -> Any:
    return (*METADATA, ("x-mq-date-time", DATE), ("authorization", authorization(key, secret)))


@contextmanager
def guarded(root: Path, text: str = FILE, **settings: Any) -> Iterator[tuple[Broker, Client]]:
    (root / "conf").mkdir()
    (root / "conf" / "plain_acl.yml").write_text(text)
    (root / "conf" / "plain_acl.yml").chmod(0o600)
    folder = str(root / "conf")
    config = config_of(root / "store", acl_enable=True, acl_folder=folder, **settings)
    with Broker(config) as broker, client(broker.config.grpc_port) as made:
        yield broker, made


def send(made: Client, metadata: Any, topic: str = "T", **system: Any) -> Any:
    request = made.protos.SendMessageRequest(messages=[made.message(topic, **system)])
    return made.call("SendMessage", request, metadata).status


def resource(made: Client, name: str) -> Any:
    return made.protos.Resource(name=name)


def test_calls_need_the_permissions_of_their_account(tmp_path: Path) -> None:
    with guarded(tmp_path) as (_, made):
        p, topic, group = made.protos, resource(made, "T"), resource(made, "G")
        assert send(made, signed("administrator")).code == Code.OK
        received = p.ReceiveMessageRequest(
            group=group,
            message_queue=p.MessageQueue(topic=topic, id=-1),
            batch_size=1,
            invisible_duration={"seconds": 30},
            long_polling_timeout={"seconds": 0},
        )
        calls = (
            ("QueryRoute", p.QueryRouteRequest(topic=topic), "both-of-T pub-of-T sub-of-T"),
            ("QueryAssignment", p.QueryAssignmentRequest(topic=topic, group=group), "sub-of-T"),
            ("Heartbeat", p.HeartbeatRequest(client_type=3, group=group), "sub-of-T both-of-T"),
            ("SendMessage", p.SendMessageRequest(messages=[made.message("T")]), "pub-of-T"),
            ("AckMessage", p.AckMessageRequest(topic=topic, group=group), "sub-of-T"),
        )
        for name, request, allowed in calls:
            for account in ("both-of-T", "pub-of-T", "sub-of-T", "other-topic"):
                status = made.call(name, request, signed(account)).status
                may = account == "both-of-T" or account in allowed.split()
                assert (status.code == Code.UNAUTHORIZED) is not may, (name, account, status)
        assert send(made, signed("sub-of-T")).message == (
            "User:sub-of-T has no permission to access Topic:T from 127.0.0.1, "
            "the decision is deny."
        )
        call = made.stream("ReceiveMessage", received, signed("pub-of-T"))
        assert [each.status.code for each in call] == [Code.UNAUTHORIZED]


def test_what_is_wrong_with_a_signature(tmp_path: Path) -> None:
    with guarded(tmp_path) as (_, made):
        date = ("x-mq-date-time", DATE)
        right = authorization("both-of-T")
        upper = authorization("both-of-T//Rocketmq", upper=True)
        told = {
            (): "username cannot be null.",
            (date, ("authorization", authorization(""))): "username cannot be null.",
            (
                date,
                ("authorization", authorization("nobody-here")),
            ): "User:nobody-here is not found.",
            (
                date,
                ("authorization", authorization("both-of-T", "wrong")),
            ): "check signature failed.",
            (date, ("authorization", "MQv2-HMAC-SHA1")): "authentication header is incorrect.",
            (date, ("authorization", "A b")): "authentication header is incorrect.",
            (("authorization", right),): "datetime is null.",
            (("authorization", upper), date): "OK",
            (("authorization", right.replace("HMAC", "OTHER")), date): "OK",
        }
        for metadata, text in told.items():
            status = send(made, (*METADATA, *metadata))
            assert status.message == text, metadata
            assert status.code == (Code.OK if text == "OK" else Code.UNAUTHORIZED)


def test_compiled_code_stores_signed_messages_and_charges_their_account(tmp_path: Path) -> None:
    with guarded(tmp_path) as (broker, made):
        both = signed("both-of-T")
        while stored_by_lanes(broker) < 10:  # the loop opens a queue with its first message
            assert send(made, both).code == Code.OK
        assert send(made, signed("sub-of-T")).code == Code.UNAUTHORIZED
        (tmp_path / "conf" / "quotas.yml").write_text("account:\n  both-of-T: {sendMessages: 1}\n")
        asyncio.run(eventually(lambda: send(made, both).code == Code.TOO_MANY_REQUESTS))
        assert send(made, signed("pub-of-T")).code == Code.OK


def test_a_half_message_needs_the_topic_only(tmp_path: Path) -> None:
    text = FILE.replace("T=PUB]", "Half=PUB]")
    with guarded(tmp_path, text) as (broker, made):
        fields = CREATE | {"topic": "Half", "attributes": "+message.type=TRANSACTION"}
        create = RemotingCommand(code=17, ext_fields=fields)
        Credentials(access_key="administrator", secret_key=SECRET).sign(create)
        with Wire(broker.address) as wire:
            assert wire.call(17, create.ext_fields).code == 0
        status = send(made, signed("pub-of-T"), "Half", message_type=TRANSACTION)
        assert status.code == Code.OK, status


def test_white_addresses_need_no_signature(tmp_path: Path) -> None:
    white = FILE.replace("globalWhiteRemoteAddresses:", "globalWhiteRemoteAddresses: [127.0.0.*]")
    with guarded(tmp_path, white) as (_, made):
        assert send(made, METADATA).code == Code.OK
        assert send(made, signed("both-of-T", "a-wrong-secret")).code == Code.OK


def test_telemetry_is_refused_in_a_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with guarded(tmp_path) as (_, made):
        for kind, name, account, code in (
            ("publishing", "T", "pub-of-T", Code.OK),
            ("publishing", "T", "sub-of-T", Code.UNAUTHORIZED),
            ("subscription", "U", "sub-of-T", Code.UNAUTHORIZED),
        ):
            settings = made.protos.Settings(client_type=1 if kind == "publishing" else 3)
            if kind == "publishing":
                settings.publishing.topics.add(name=name)
            else:
                settings.subscription.group.name = "G"
                settings.subscription.subscriptions.add(topic=resource(made, name))
            command = made.protos.TelemetryCommand(settings=settings)
            answer = next(made.telemetry(iter([command]), signed(account)))
            assert answer.status.code == code, (kind, account, answer.status)
        assert "has no permission to access Topic:T" in caplog.text


# --- compiled code beside the rules

pieces = st.sampled_from(
    [
        *("MQv2-HMAC-SHA1", " ", ",", "=", "/", "Credential=", "Signature=", "SignedHeaders="),
        *("first-key", "x-mq-date-time", "\t", "ü", "Credential=first-key/r/s", "0A"),
    ]
)


@given(
    st.one_of(
        st.lists(pieces, max_size=8).map("".join),
        st.builds(
            authorization,
            st.sampled_from(["first-key", "other-key", "first-key/r/s", ""]),
            st.sampled_from([SECRET, "wrong"]),
            st.just(DATE),
            upper=st.booleans(),
        ),
    ),
    st.sampled_from([DATE, "", "2020"]),
    st.sampled_from(["T", "U", "V"]),
)
@example(authorization("first-key"), DATE, "T")
@example(authorization("first-key").replace(", ", ",\t ") + " ", DATE, "T")
def test_compiled_code_and_the_rules_admit_the_same_calls(
    header: str, date: str, topic: str
) -> None:
    account = Account(
        access_key="first-key", secret_key=SECRET, topics={"T": Perm.PUB, "U": Perm.SUB}
    )
    known = Accounts(by_key={account.access_key: account})
    sha1 = load_sha1()
    assert sha1 is not None
    table = AccountTable(sha1)
    table.replace([account])
    fields = {CallField.AUTHORIZATION: header, CallField.DATE_TIME: date}
    connection: Any = SimpleNamespace(peer=("10.0.0.1", 1))
    call = GrpcCall(connection, 1, fields)
    try:
        access = CallAccess(lambda: known, LimitedLog(logging.getLogger("silent")))
        access.admit(call, [topic_need(topic, Perm.PUB)])
    except CallRefusedError:
        pass
    found = producer_of(CallAccounts(table), header.encode(), date.encode(), topic.encode())
    assert call.access_key == (None if found is None else found.decode())


def test_without_a_table_the_rules_decide() -> None:
    header = authorization("first-key").encode()
    assert producer_of(CallAccounts(None), header, DATE.encode(), b"T") is None
