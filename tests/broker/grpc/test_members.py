"""gRPC clients as members of groups, for tools of RocketMQ 4."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from pathlib import Path
from typing import Any

from harness.wire import HEART_BEAT, Wire

from congreve.broker.broker import Broker
from congreve.broker.grpc.codecs.codes import Code
from congreve.records.record import offset_message_id
from remoting.http2.built import needs_http2

from .clients import METADATA, Client, open_telemetry
from .test_door import serving, stored

pytestmark = needs_http2

CLIENT_ID = METADATA[0][1]
CONSUMERS, PRODUCERS, RUNNING, DIRECTLY = 203, 204, 307, 309
PUSH_CONSUMER = 2


def asked(broker: Broker, code: int, **fields: str) -> Any:
    """The answer to a request of a tool, and its body."""
    with Wire(broker.address) as wire:
        answer = wire.call(code, fields)
        return answer, json.loads(answer.body or "null")


def consumer_settings(made: Client) -> Any:
    """Those of a push consumer with a filter."""
    settings = made.protos.Settings(client_type=PUSH_CONSUMER)
    settings.subscription.group.name = "g"
    entry = settings.subscription.subscriptions.add()
    entry.topic.name = "Normal"
    entry.expression.type, entry.expression.expression = 1, "a || b"
    return settings


def test_connections_are_shown_until_the_telemetry_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        with open_telemetry(made, consumer_settings(made)):
            answer, body = asked(broker, CONSUMERS, consumerGroup="g")
            assert answer.code == 0
            (shown,) = body["connectionSet"]
            assert (shown["clientId"], shown["language"], shown["version"]) == (
                CLIENT_ID,
                "PYTHON",
                437,  # V5_1_2
            )
            assert shown["clientAddr"].startswith("127.0.0.1:")
            assert shown["protocol"] == "grpc"
            assert body["consumeType"] == "CONSUME_PASSIVELY"
            subscription = body["subscriptionTable"]["Normal"]
            assert (subscription["subString"], sorted(subscription["tagsSet"])) == (
                "a || b",
                ["a", "b"],
            )
            heartbeat = made.protos.HeartbeatRequest(client_type=PUSH_CONSUMER)
            assert made.call("Heartbeat", heartbeat).status.code == Code.OK
            made.call("NotifyClientTermination", made.protos.NotifyClientTerminationRequest())
            while asked(broker, CONSUMERS, consumerGroup="g")[0].code == 0:
                pass
        producer = made.protos.Settings(client_type=1)
        producer.publishing.topics.add(name="Normal")
        with open_telemetry(made, producer):
            answer, body = asked(broker, PRODUCERS, producerGroup="Normal")
            assert [each["clientId"] for each in body["connectionSet"]] == [CLIENT_ID]
        while asked(broker, PRODUCERS, producerGroup="Normal")[0].code == 0:
            pass


def test_metrics_tell_grpc_clients_from_others(tmp_path: Path) -> None:
    with serving(tmp_path, metrics_port=0) as (broker, made), Wire(broker.address) as wire:
        group = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY"}
        body = json.dumps({"clientID": "other", "consumerDataSet": [group]})
        assert wire.call(HEART_BEAT, {}, body.encode()).code == 0
        with open_telemetry(made, consumer_settings(made)):
            lines = metrics_of(broker)
    name = "rocketmq_consumer_connections{"
    found = [line for line in lines if line.startswith(name) and 'consumer_group="g"' in line]
    kinds = [re.search('protocol_type="([a-z]*)"', line) for line in found]
    assert sorted(kind[1] for kind in kinds if kind) == ["grpc", "remoting"]


def metrics_of(broker: Broker) -> list[str]:
    url = f"http://127.0.0.1:{broker.config.metrics_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode().splitlines()


def test_metrics_tell_requests_by_grpc_from_others(tmp_path: Path) -> None:
    labels = re.compile(r'protocol_type="([a-z]*)",request_code="(\w*)"')
    with (
        serving(tmp_path, metrics_port=0) as (broker, made),
        Wire(broker.address) as wire,
        open_telemetry(made, consumer_settings(made)),
    ):
        assert made.send(made.message("Normal")).status.code == Code.OK
        assert made.send(made.message("Fifo", message_group="a")).status.code == Code.OK
        assert wire.call(30, {"topic": "Normal", "queueId": "0"}).code == 0
        lines = metrics_of(broker)
    assert "congreve_grpc_connections 1" in lines
    assert "congreve_grpc_calls 1" in lines
    found = [line for line in lines if line.startswith("rocketmq_rpc_latency_count{")]
    kinds = set(labels.findall("\n".join(found)))
    assert ("remoting", "get_max_offset") in kinds
    assert ("grpc", "send_message_v2") in kinds
    assert ("remoting", "send_message_v2") not in kinds


def test_a_client_for_node_gets_its_first_settings_twice(tmp_path: Path) -> None:
    metadata = tuple((name, "HTTP" if name == "x-mq-language" else it) for name, it in METADATA)
    with serving(tmp_path) as (_, made):
        settings = consumer_settings(made)
        with open_telemetry(made, settings, metadata) as commands:
            again = next(commands)
            assert again.status.code == Code.OK
            assert again.settings.subscription.receive_batch_size == 32
            commands.answer(made.protos.TelemetryCommand(settings=settings))
            assert next(commands).settings == again.settings
            # Others, and later ones, are answered once: what comes next answers the next.
            settings.subscription.group.name = "other"
            commands.answer(made.protos.TelemetryCommand(settings=settings))
            assert next(commands).settings.subscription.group.name == "other"


def test_tools_ask_a_client_through_its_telemetry(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        made.send(made.message("Normal", b"direct"))
        ((queue_id, offset),) = stored(broker, "Normal")
        place = broker.store.place_of(broker.store.queues.get("Normal", queue_id), offset)
        assert place is not None
        message_id = offset_message_id(broker.config.store_host, place)
        of_client = {"consumerGroup": "g", "clientId": CLIENT_ID}
        with open_telemetry(made, consumer_settings(made)) as commands:
            answer, info = asked(broker, RUNNING, **of_client)
            assert answer.code == 0
            assert "jstack" not in info
            assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert [each["topic"] for each in info["subscriptionSet"]] == ["Normal"]
            client = threading.Thread(target=_answer, args=(made, commands), daemon=True)
            client.start()
            answer, info = asked(broker, RUNNING, jstackEnable="true", **of_client)
            assert (answer.code, info["jstack"]) == (0, "the threads")
            answer, result = asked(
                broker, DIRECTLY, msgId=message_id, brokerName="b", topic="Normal", **of_client
            )
            assert (answer.code, result["consumeResult"]) == (0, "CR_SUCCESS")
            client.join(20)


def _answer(made: Client, commands: Any) -> None:
    """Answer two commands as a client does."""
    threads = made.protos.TelemetryCommand()
    threads.thread_stack_trace.nonce = next(commands).print_thread_stack_trace_command.nonce
    threads.thread_stack_trace.thread_stack_trace = "the threads"
    commands.answer(threads)
    verify = next(commands).verify_message_command
    assert verify.message.body == b"direct"
    done = made.protos.TelemetryCommand()
    done.status.code = Code.OK
    done.verify_message_result.nonce = verify.nonce
    commands.answer(done)
