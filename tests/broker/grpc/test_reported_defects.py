"""Defects reported of RocketMQ's proxy, by the numbers of their issues, with gRPC clients."""

from __future__ import annotations

import time
from pathlib import Path

import grpc

from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protos import Protos
from remoting.http2.built import needs_http2

from .clients import Client
from .test_consuming import consuming
from .test_door import serving, stored

pytestmark = needs_http2


def test_779_messages_of_one_request_and_group_are_in_order_in_one_queue(tmp_path: Path) -> None:
    with consuming(tmp_path, "Fifo") as (broker, made, consumer):
        messages = [made.message("Fifo", b"%d" % n, message_group="one") for n in range(10)]
        answer = made.send(*messages)
        assert [entry.status.code for entry in answer.entries] == [Code.OK] * 10
        assert len({queue_id for queue_id, _ in stored(broker, "Fifo")}) == 1
        found = []
        while len(found) < 10:
            found += consumer.receive()[1]
        assert [message.body for message in found] == [b"%d" % n for n in range(10)]


def test_9583_10259_a_change_makes_the_new_handle_the_only_one(tmp_path: Path) -> None:
    with consuming(tmp_path) as (broker, made, consumer):
        made.send(made.message("Normal"))
        _, (found,) = consumer.receive()
        changed = consumer.change(found, 60_000)
        assert changed.status.code == Code.OK
        assert consumer.ack(found).status.code == Code.INVALID_RECEIPT_HANDLE
        assert consumer.change(found, 1_000).status.code == Code.INVALID_RECEIPT_HANDLE
        assert broker.managers.pops.in_flight.out == 1
        found.system_properties.receipt_handle = changed.receipt_handle
        assert consumer.ack(found).status.code == Code.OK
        assert broker.managers.pops.in_flight.out == 0
        assert consumer.change(found, 1_000).status.code == Code.INVALID_RECEIPT_HANDLE


def test_9128_10278_a_handle_is_good_after_a_restart_and_on_another_connection(
    tmp_path: Path,
) -> None:
    with consuming(tmp_path) as (_, made, consumer):
        made.send(made.message("Normal"))
        _, (found,) = consumer.receive()
        changed = consumer.change(found, 600_000)
        found.system_properties.receipt_handle = changed.receipt_handle
    with consuming(tmp_path) as (broker, _, consumer):
        assert broker.managers.pops.in_flight.out == 1
        assert consumer.ack(found).status.code == Code.OK
        assert broker.managers.pops.in_flight.out == 0


def test_1344_what_is_not_acknowledged_comes_again_in_time(tmp_path: Path) -> None:
    with consuming(tmp_path) as (_, made, consumer):
        made.send(made.message("Normal"))
        _, (found,) = consumer.receive()
        assert consumer.change(found, 2_000).status.code == Code.OK
        code, messages = consumer.receive(1)
        assert (code, messages) == (Code.MESSAGE_NOT_FOUND, [])
        _, (again,) = consumer.receive(60)
        assert again.system_properties.message_id == found.system_properties.message_id


def test_no_born_timestamp_is_now(tmp_path: Path) -> None:
    with consuming(tmp_path) as (_, made, consumer):
        message = made.message("Normal")
        message.system_properties.ClearField("born_timestamp")
        before_ms = time.time_ns() // 1_000_000 - 1_000
        made.send(message)
        _, (found,) = consumer.receive()
        assert found.system_properties.born_timestamp.ToMilliseconds() >= before_ms


def test_10510_pings_of_an_idle_client_leave_its_connection_open(tmp_path: Path) -> None:
    options = [
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    with serving(tmp_path) as (broker, _):
        address = f"127.0.0.1:{broker.config.grpc_port}"
        with grpc.insecure_channel(address, options=options) as channel:
            made = Client(Protos(), channel)
            assert made.send(made.message("Normal")).status.code == Code.OK
            before = set(broker.ports.guard.connections)
            states: list[grpc.ChannelConnectivity] = []
            channel.subscribe(states.append)
            time.sleep(3)  # RocketMQ's proxy refuses the third ping
            assert made.send(made.message("Normal")).status.code == Code.OK
            assert set(broker.ports.guard.connections) == before
            assert set(states) <= {grpc.ChannelConnectivity.READY}
