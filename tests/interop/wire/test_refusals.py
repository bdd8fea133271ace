"""The broker refuses requests with the reference's code and a remark with the reason."""

from __future__ import annotations

import contextlib
import socket
import struct
import uuid

import pytest
from harness.cluster import Cluster
from harness.wire import (
    GET_BROKER_CLUSTER_INFO,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    pull_fields,
    send_fields,
)

SYSTEM_ERROR = 1
NOT_SUPPORTED = 3
MESSAGE_ILLEGAL = 13
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
SUBSCRIPTION_NOT_EXIST = 24
MEBIBYTE = 1 << 20


def refused(
    cluster: Cluster, code: int, fields: dict[str, str], body: bytes = b"x"
) -> tuple[int, str]:
    """Code and remark of the answer; the same connection still serves afterwards."""
    with Wire(cluster.broker.address) as wire:
        answer = wire.call(code, fields, body)
        good = wire.call(SEND_MESSAGE_V2, send_fields("refusals", 0, {}), b"good")
        assert good.code == 0, good
    return answer.code, answer.remark or ""


@pytest.mark.parametrize(
    ("topic", "code", "said"),
    [
        ("white space", SYSTEM_ERROR, "characters"),
        ("star*", SYSTEM_ERROR, "characters"),
        ("x" * 128, SYSTEM_ERROR, "long"),
        ("", SYSTEM_ERROR, "blank"),
        ("SCHEDULE_TOPIC_XXXX", NO_PERMISSION, "SCHEDULE_TOPIC_XXXX"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", NO_PERMISSION, "RMQ_SYS_TRANS_HALF_TOPIC"),
    ],
)
def test_a_send_to_a_forbidden_topic_is_refused(
    cluster: Cluster, topic: str, code: int, said: str
) -> None:
    got, remark = refused(cluster, SEND_MESSAGE_V2, send_fields(topic, 0, {}))
    assert got == code
    assert said in remark


def test_a_send_to_a_topic_that_cannot_be_created_is_refused(cluster: Cluster) -> None:
    name = f"unknown-{uuid.uuid4().hex[:8]}"
    fields = {**send_fields(name, 0, {}), "c": "NoSuchTemplate"}
    code, remark = refused(cluster, SEND_MESSAGE_V2, fields)
    assert code == TOPIC_NOT_EXIST
    assert name in remark


def test_a_send_to_a_queue_that_does_not_exist_is_refused(cluster: Cluster) -> None:
    code, remark = refused(cluster, SEND_MESSAGE_V2, send_fields("refusals", 99, {}))
    assert code == SYSTEM_ERROR
    assert "99" in remark


def test_a_body_over_four_mebibytes_is_refused(cluster: Cluster) -> None:
    body = bytes(4 * MEBIBYTE + 1)
    code, _ = refused(cluster, SEND_MESSAGE_V2, send_fields("refusals", 0, {}), body)
    assert code == MESSAGE_ILLEGAL


def test_properties_over_32767_bytes_are_refused(cluster: Cluster) -> None:
    code, _ = refused(cluster, SEND_MESSAGE_V2, send_fields("refusals", 0, {"p": "v" * 33_000}))
    assert code == MESSAGE_ILLEGAL


def test_an_unknown_request_code_is_refused(cluster: Cluster) -> None:
    code, remark = refused(cluster, 9999, {})
    assert code == NOT_SUPPORTED
    assert "9999 not supported" in remark


def test_a_header_without_its_required_fields_is_refused(cluster: Cluster) -> None:
    code, remark = refused(cluster, PULL_MESSAGE, {"topic": "refusals"})
    assert code == SYSTEM_ERROR
    assert remark


def test_invalid_pulls_are_refused(cluster: Cluster) -> None:
    refused(cluster, 9999, {})
    good = pull_fields("refusals", 0, 0, 1)

    def pull(**changed: str) -> int:
        return refused(cluster, PULL_MESSAGE, {**good, **changed})[0]

    assert pull(topic=f"unknown-{uuid.uuid4().hex[:8]}") == TOPIC_NOT_EXIST
    assert pull(queueId="77") == SYSTEM_ERROR
    assert pull(queueId="-1") == SYSTEM_ERROR
    assert pull(expressionType="SQL92", subscription="a > 1") == SYSTEM_ERROR
    # Without the subscription flag the group must be connected.
    assert pull(sysFlag="0", consumerGroup="nobody-there") == SUBSCRIPTION_NOT_EXIST


@pytest.mark.parametrize(
    "stream",
    [
        struct.pack(">II", 0x7FFFFFFF, 10) + b"x" * 64,
        struct.pack(">II", 20, 0x00FFFFFF) + b"x" * 64,
        struct.pack(">II", 20, 16) + b"this is not json",
        struct.pack(">II", 20, 0x07000010) + b"x" * 16,
        struct.pack(">IIhBhiii", 25, 0x01000015, 10, 0, 401, 1, 0, 1000) + bytes(4),
        b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n",
    ],
    ids=["huge", "header longer than frame", "no json", "type 7", "wild binary", "http"],
)
def test_a_stream_without_frames_closes_only_its_own_connection(
    cluster: Cluster, stream: bytes
) -> None:
    host, _, port = cluster.broker.address.rpartition(":")
    with Wire(cluster.broker.address) as bystander:
        bystander.call(SEND_MESSAGE_V2, send_fields("refusals", 0, {}), b"before")
        with socket.create_connection((host, int(port)), timeout=10) as vandal:
            vandal.sendall(stream)
            with contextlib.suppress(ConnectionResetError):
                assert vandal.recv(1 << 16) == b""
        after = bystander.call(SEND_MESSAGE_V2, send_fields("refusals", 0, {}), b"after")
        assert after.code == 0


def test_a_name_server_refuses_requests_for_brokers(cluster: Cluster) -> None:
    with Wire(cluster.broker.address) as wire:
        assert wire.call(GET_BROKER_CLUSTER_INFO, {}).code == NOT_SUPPORTED
