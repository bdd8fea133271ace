"""gRPC clients of a running broker."""

from __future__ import annotations

import json
import queue
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker.serving.test_fastpath import CREATE
from harness.certificates import Authority
from harness.wire import GET_ROUTEINFO_BY_TOPIC, Wire

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.config_parts import TlsConfig
from congreve.broker.errors import BrokerError
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import SERVICE
from congreve.engine.config import StoreConfig
from congreve.records.record import decode_record
from remoting.http2.built import needs_http2

from .clients import DELAY, FIFO, MESSAGE_ID, METADATA, TRANSACTION, Client, client

pytestmark = needs_http2

TYPES = {"Normal": None, "Fifo": "FIFO", "Delay": "DELAY", "Trans": "TRANSACTION"}


def config_of(root: Path, **settings: Any) -> BrokerConfig:
    store = StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=32 << 20,
        max_hash_slot_num=1000,
        max_index_num=4000,
        flush_disk_type=settings.pop("flush", "ASYNC_FLUSH"),
    )
    return BrokerConfig(
        **{
            "broker_name": "b",
            "broker_ip1": "127.0.0.1",
            "bind_address": "127.0.0.1",
            "listen_port": 0,
            "grpc_port": 0,
            "network_threads": 1,
            "store": store,
            **settings,
        }
    )


@contextmanager
def serving(root: Path, **settings: Any) -> Iterator[tuple[Broker, Client]]:
    with Broker(config_of(root, **settings)) as broker:
        for name, kind in TYPES.items():
            create(broker, name, "" if kind is None else f"+message.type={kind}")
        with client(broker.config.grpc_port) as made:
            yield broker, made


def create(broker: Broker, topic: str, attributes: str = "", **queues: str) -> None:
    fields = {"topic": topic, "readQueueNums": "8", "writeQueueNums": "8"} | queues
    if attributes:
        fields["attributes"] = attributes
    with Wire(broker.address) as wire:
        answer = wire.call(17, CREATE | fields)
        assert answer.code == 0, answer


def stored_by_lanes(broker: Broker) -> int:
    assert broker._paths is not None
    return broker._paths.stored_by_fast_path


def stored(broker: Broker, topic: str) -> list[tuple[int, int]]:
    """The queue and the offset of each message of a topic."""
    return [
        (queue_id, offset)
        for queue_id in range(8)
        for offset in range(broker.store.max_offset(topic, queue_id))
    ]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_messages_are_stored_by_compiled_code(tmp_path: Path, flush: str) -> None:
    with serving(tmp_path, flush=flush) as (broker, made):
        message = made.message("Normal", tag="t", keys=["k1", "k2"])
        message.user_properties["colour"] = "blue"
        while len({queue_id for queue_id, _ in stored(broker, "Normal")}) < 8:
            made.send(message)  # the loop opens a queue with its first message
        before = stored_by_lanes(broker)
        places = stored(broker, "Normal")
        answers = [made.send(message) for _ in range(16)]
        assert stored_by_lanes(broker) == before + 16
        for answer in answers:
            assert (answer.status.code, answer.status.message) == (Code.OK, "OK")
            (entry,) = answer.entries
            assert (entry.message_id, entry.transaction_id) == (MESSAGE_ID, MESSAGE_ID)
        # One queue after the other.
        new = Counter(queue_id for queue_id, _ in {*stored(broker, "Normal")} - {*places})
        assert new == dict.fromkeys(range(8), 2)


def test_each_type_goes_to_topics_that_take_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        now = broker._clock.now()
        of_type = {
            "Normal": {},
            "Fifo": {"message_type": FIFO, "message_group": "g"},
            "Delay": {"message_type": DELAY, "delivery_timestamp": now + 60_000},
            "Trans": {"message_type": TRANSACTION},
        }
        for kind, fields in of_type.items():
            for topic in TYPES:
                status = made.send(made.message(topic, **fields)).status
                if topic == kind:
                    assert status.code == Code.OK, (topic, status)
                else:
                    assert status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
                    assert "the expected type is" in status.message


def test_messages_of_a_group_are_in_one_queue(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        for _ in range(5):
            assert made.send(made.message("Fifo", message_group="one")).status.code == Code.OK
        assert len({queue_id for queue_id, _ in stored(broker, "Fifo")}) == 1


def test_a_delayed_message_has_a_handle_to_take_it_back(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        due = broker._clock.now() + 60_000
        answer = made.send(made.message("Delay", message_type=DELAY, delivery_timestamp=due))
        assert answer.entries[0].recall_handle


def test_faults_of_messages_have_their_codes(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, made):
        now_s = 4_000_000_000

        def code_of(message: Any) -> int:
            return int(made.send(message).status.code)

        assert code_of(made.message("Normal", b"")) == Code.MESSAGE_BODY_EMPTY
        large = made.message("Normal", bytes((4 << 20) + 1))
        assert code_of(large) == Code.MESSAGE_BODY_TOO_LARGE
        assert code_of(made.message("no topic")) == Code.ILLEGAL_TOPIC
        assert code_of(made.message("TBW102")) == Code.ILLEGAL_TOPIC
        assert code_of(made.message("Normal", tag=" ")) == Code.ILLEGAL_MESSAGE_TAG
        assert code_of(made.message("Normal", tag="a|b")) == Code.ILLEGAL_MESSAGE_TAG
        assert code_of(made.message("Normal", keys=[" "])) == Code.ILLEGAL_MESSAGE_KEY
        assert code_of(made.message("Normal", message_id="")) == Code.ILLEGAL_MESSAGE_ID
        assert code_of(made.message("Fifo", message_group="x" * 64)) == Code.ILLEGAL_MESSAGE_GROUP
        far = made.message("Delay", delivery_timestamp=now_s * 1000)
        assert code_of(far) == Code.ILLEGAL_DELIVERY_TIME
        reserved = made.message("Normal")
        reserved.user_properties["TAGS"] = "x"
        assert code_of(reserved) == Code.ILLEGAL_MESSAGE_PROPERTY_KEY
        many = made.message("Normal")
        many.user_properties.update({f"k{n}": "v" for n in range(129)})
        assert code_of(many) == Code.MESSAGE_PROPERTIES_TOO_LARGE
        assert made.send().status.code == Code.MESSAGE_CORRUPTED
        without_id = [pair for pair in METADATA if pair[0] != "x-mq-client-id"]
        request = made.protos.SendMessageRequest(messages=[made.message("Normal")])
        answer = made.call("SendMessage", request, without_id)
        assert answer.status.code == Code.CLIENT_ID_REQUIRED


def test_a_large_message_passes(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, made):
        assert made.send(made.message("Normal", bytes(4 << 20))).status.code == Code.OK


def test_the_route_names_the_address_that_the_client_has_used(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        create(broker, "Uneven", readQueueNums="4", writeQueueNums="2")
        request = made.protos.QueryRouteRequest(topic=made.protos.Resource(name="Uneven"))
        answer = made.call("QueryRoute", request)
        assert answer.status.code == Code.OK
        assert [(each.id, each.permission) for each in answer.message_queues] == [
            (0, 4),
            (1, 4),
            (2, 2),
            (3, 2),
        ]
        found = answer.message_queues[0]
        assert (found.topic.name, list(found.accept_message_types)) == ("Uneven", [1])
        assert (found.broker.name, found.broker.id) == ("b", 0)
        endpoints = found.broker.endpoints
        assert endpoints.scheme == 1
        assert [(each.host, each.port) for each in endpoints.addresses] == [
            ("127.0.0.1", broker.config.grpc_port)
        ]
        request.topic.name = "Absent"
        assert made.call("QueryRoute", request).status.code == Code.TOPIC_NOT_FOUND
        request.topic.name = "TBW102"
        assert made.call("QueryRoute", request).status.code == Code.ILLEGAL_TOPIC


def test_742_1078_8304_8864_8865_9604_a_route_has_the_announced_address(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    outside = {"listeners": f"out=127.0.0.1:{port}", "advertised_listeners": "out=mq.example:443"}
    with serving(tmp_path, **outside) as (broker, made), client(port) as other:
        request = made.protos.QueryRouteRequest(topic=made.protos.Resource(name="Normal"))
        of_used = address_in(made.call("QueryRoute", request))
        assert of_used == (1, "127.0.0.1", broker.config.grpc_port)
        assert address_in(other.call("QueryRoute", request)) == (3, "mq.example", 443)


def test_9630_a_route_asked_on_any_port_is_of_the_clients_protocol(tmp_path: Path) -> None:
    with serving(tmp_path, answer_route_requests=True) as (broker, made):
        request = made.protos.QueryRouteRequest(topic=made.protos.Resource(name="Normal"))
        for port in (broker.port, broker.config.grpc_port):
            with Wire(f"127.0.0.1:{port}") as wire, client(port) as other:
                route = json.loads(wire.call(GET_ROUTEINFO_BY_TOPIC, {"topic": "Normal"}).body)
                addresses = route["brokerDatas"][0]["brokerAddrs"]
                assert addresses == {"0": f"127.0.0.1:{broker.port}"}
                assert address_in(other.call("QueryRoute", request)) == (1, "127.0.0.1", port)


def address_in(route: Any) -> tuple[int, str, int]:
    endpoints = route.message_queues[0].broker.endpoints
    (address,) = endpoints.addresses
    return endpoints.scheme, address.host, address.port


def test_tools_ask_for_the_services_and_their_messages(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        package = "grpc.reflection.v1"
        request = made.protos.of(package, "ServerReflectionRequest")
        response = made.protos.of(package, "ServerReflectionResponse")
        with grpc.insecure_channel(f"127.0.0.1:{broker.config.grpc_port}") as channel:
            for name in (package, package + "alpha"):
                asked = (
                    request(list_services=""),
                    request(file_containing_symbol=SERVICE),
                    request(file_by_filename="apache/rocketmq/v2/definition.proto"),
                    request(file_containing_symbol="absent.Service"),
                    request(host="here"),
                )
                services, of_service, of_name, absent, nothing = channel.stream_stream(
                    f"/{name}.ServerReflection/ServerReflectionInfo",
                    request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString,
                )(iter(asked), timeout=20)
                assert [each.name for each in services.list_services_response.service] == [
                    SERVICE,
                    "grpc.reflection.v1.ServerReflection",
                ]
                files = of_service.file_descriptor_response.file_descriptor_proto
                assert b"google/protobuf/duration.proto" in b"".join(files)
                assert b"SendMessageRequest" in files[0]
                assert of_name.file_descriptor_response.file_descriptor_proto
                assert absent.error_response.error_code == 5
                assert (nothing.valid_host, nothing.error_response.error_code) == ("here", 12)
        assert not broker.ports._grpc.calls.open_calls  # type: ignore[union-attr]


def test_1168_1191_settings_come_back_with_a_metric_and_end_with_the_stream(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
        settings = made.protos.Settings(client_type=1)
        settings.publishing.topics.add(name="Normal")
        stream = made.telemetry(iter(sent.get, None))
        for _ in range(2):
            sent.put(made.protos.TelemetryCommand(settings=settings))
            answer = next(stream)
            assert answer.status.code == Code.OK
            assert answer.settings.publishing.max_body_size == 4 << 20
            assert answer.settings.backoff_policy.max_attempts == 3
            assert answer.settings.HasField("metric")
        assert len(broker.ports._grpc.sessions) == 1  # type: ignore[union-attr]
        heartbeat = made.protos.HeartbeatRequest(client_type=1)
        assert made.call("Heartbeat", heartbeat).status.code == Code.OK
        sent.put(None)
        assert list(stream) == []
        assert len(broker.ports._grpc.sessions) == 0  # type: ignore[union-attr]


def test_settings_without_a_matter_end_the_stream(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        command = made.protos.TelemetryCommand(settings=made.protos.Settings(client_type=1))
        with pytest.raises(grpc.RpcError) as caught:
            list(made.telemetry(iter([command])))
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "there is no publishing or subscription data" in caught.value.details()
        assert broker.ports._grpc is not None
        assert not broker.ports._grpc.calls.open_calls
        assert len(broker.ports._grpc.sessions) == 0


def test_an_unknown_method_is_unimplemented(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as (broker, _),
        grpc.insecure_channel(f"127.0.0.1:{broker.port}") as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(f"/{SERVICE}/Unknown")(b"", timeout=20)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_every_port_takes_grpc_and_remoting(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, _), client(broker.port) as other:
        assert other.send(other.message("Normal")).status.code == Code.OK


def test_without_grpc_port_http2_is_refused(tmp_path: Path) -> None:
    with (
        Broker(config_of(tmp_path, grpc_port=-1)) as broker,
        socket.create_connection(("127.0.0.1", broker.port), timeout=20) as peer,
    ):
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert peer.recv(100) == b""


def test_a_taken_port_is_an_error_at_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(BrokerError, match=f"{port} \\(grpcPort\\)"),
            Broker(config_of(tmp_path, grpc_port=port)),
        ):
            pass


def test_what_is_stored_is_what_a_consumer_of_remoting_reads(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        message = made.message("Normal", b"text", tag="t", keys=["k"])
        message.user_properties["a"] = "b"
        made.send(message)
        (place,) = stored(broker, "Normal")
        record = read_record(broker, *place)
        assert record.body == b"text"
        assert record.born_timestamp == 1_700_000_000_123
        found = record.properties
        assert {name: found[name] for name in ("UNIQ_KEY", "TAGS", "KEYS", "a", "__BORNHOST")} == {
            "UNIQ_KEY": MESSAGE_ID,
            "TAGS": "t",
            "KEYS": "k",
            "a": "b",
            "__BORNHOST": "host",
        }


def read_record(broker: Broker, queue_id: int, offset: int) -> Any:
    opened = broker.store.queues.get("Normal", queue_id)
    place = broker.store.place_of(opened, offset)
    assert place is not None
    return decode_record(broker.store.record_at(place))


def test_tls_and_plain_share_the_port(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    certificate, key = map(str, authority.issue("broker"))
    tls = TlsConfig(server_mode="permissive", server_cert_path=certificate, server_key_path=key)
    with serving(tmp_path, tls=tls) as (broker, made):
        assert made.send(made.message("Normal")).status.code == Code.OK
        credentials = grpc.ssl_channel_credentials(authority.path.read_bytes())
        target = f"127.0.0.1:{broker.config.grpc_port}"
        with grpc.secure_channel(target, credentials) as channel:
            secure = Client(made.protos, channel)
            assert secure.send(secure.message("Normal", bytes(1 << 20))).status.code == Code.OK


def test_a_certificate_is_replaced_while_clients_go_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    certificate, key = map(str, authority.issue("broker"))
    tls = TlsConfig(server_mode="permissive", server_cert_path=certificate, server_key_path=key)
    with serving(tmp_path, tls=tls) as (broker, made):
        target = "127.0.0.1", broker.config.grpc_port
        credentials = grpc.ssl_channel_credentials(authority.path.read_bytes())
        with grpc.secure_channel("{}:{}".format(*target), credentials) as channel:
            early = Client(made.protos, channel)
            assert early.send(early.message("Normal")).status.code == Code.OK
            first = greeted(target, authority.path)
            authority.issue("broker")
            assert broker.ports.certificates is not None
            assert broker.ports.certificates.follow()
            assert greeted(target, authority.path) != first
            assert early.send(early.message("Normal")).status.code == Code.OK


def greeted(target: tuple[str, int], authority: Path) -> bytes | None:
    """The certificate that a client of HTTP/2 is shown."""
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(target, timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        assert secure.selected_alpn_protocol() == "h2"
        return secure.getpeercert(binary_form=True)


def test_without_a_certificate_the_port_makes_one(tmp_path: Path) -> None:
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    unchecked.set_alpn_protocols(["h2"])
    with serving(tmp_path) as (broker, made):
        assert made.send(made.message("Normal")).status.code == Code.OK
        address = "127.0.0.1", broker.config.grpc_port
        with (
            socket.create_connection(address, timeout=20) as plain,
            unchecked.wrap_socket(plain) as peer,
        ):
            assert peer.selected_alpn_protocol() == "h2"
            certificate = ssl.DER_cert_to_PEM_cert(peer.getpeercert(binary_form=True) or b"")
        assert (tmp_path / "congreve" / "grpc.pem").read_text() == certificate
        assert (tmp_path / "congreve" / "grpc.key").stat().st_mode & 0o777 == 0o600
        credentials = grpc.ssl_channel_credentials(certificate.encode())
        named = (("grpc.ssl_target_name_override", broker.config.broker_name),)
        target = f"127.0.0.1:{broker.config.grpc_port}"
        with grpc.secure_channel(target, credentials, options=named) as channel:
            secure = Client(made.protos, channel)
            assert secure.send(secure.message("Normal")).status.code == Code.OK
