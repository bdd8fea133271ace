"""How long one request may hold the event loop of a name server: every request code.

Two brokers with 10,000 topics each, 1,000 settings. The tests measure the CPU time of the loop's
thread within one callback, as the median of several rounds, so that they pass on a busy machine.
"""

import asyncio
import gc
from statistics import median
from typing import Any

from harness.slowness import limit_s

from congreve.namesrv.routes import BrokerIdentity
from congreve.namesrv.server import NameServer
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.register_body import write_registration

TOPICS, SETTINGS = 10_000, 1_000
LIMIT_S = 0.005
ROUNDS = 5

COMMON: dict[str, object] = {
    "brokerName": "a",
    "brokerAddr": "127.0.0.1:1",
    "clusterName": "C",
    "haServerAddr": "127.0.0.1:2",
    "brokerId": 0,
    "compressed": "true",
    "cluster": "C",
    "topic": "T-50",
    "namespace": "N",
    "key": "k-1",
    "value": "v",
}


class Channel:
    """The connection of a broker."""

    closed = False
    peer = ("127.0.0.1", 1)
    listener = ""


def wrapper(version: int) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=version, timestamp=1),
        topic_config_table={f"T-{i}": TopicConfig(topic_name=f"T-{i}") for i in range(TOPICS)},
    )


def registration(version: int) -> bytes:
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper(version))
    return write_registration(body, compressed=True)


async def fill(server: NameServer) -> None:
    """The state of a name server of a big cluster, written into the tables without requests."""
    for number, name in enumerate("ab"):
        identity = BrokerIdentity("C", name, 0, f"127.0.0.1:{number}")
        server.routes.register(identity, wrapper(0), [], Channel())
    for number in range(SETTINGS):
        await server.kv.put("N", f"k-{number}", "v" * 20)


R = RequestCode
NEW_DATA, TOPIC_T_1 = {"counter": 5, "timestamp": 1}, {"key": "T-1"}
# Each request's fields beside COMMON, and its body.
REQUESTS: dict[int, tuple[dict[str, object], bytes]] = {
    R.PUT_KV_CONFIG: (TOPIC_T_1, b""),
    R.GET_KV_CONFIG: ({}, b""),
    R.DELETE_KV_CONFIG: (TOPIC_T_1, b""),
    R.GET_KVLIST_BY_NAMESPACE: ({}, b""),
    R.QUERY_DATA_VERSION: ({}, fastjson.dumps(NEW_DATA).encode()),
    R.REGISTER_BROKER: ({}, b""),  # a new version each round
    R.GET_ROUTEINFO_BY_TOPIC: ({}, b""),
    R.GET_BROKER_CLUSTER_INFO: ({}, b""),
    R.WIPE_WRITE_PERM_OF_BROKER: ({}, b""),
    R.ADD_WRITE_PERM_OF_BROKER: ({}, b""),
    R.DELETE_TOPIC_IN_NAMESRV: ({"topic": "T-2"}, b""),
    R.GET_TOPICS_BY_CLUSTER: ({}, b""),
    R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ({}, b""),
    R.GET_SYSTEM_TOPIC_LIST_FROM_NS: ({}, b""),
    R.GET_UNIT_TOPIC_LIST: ({}, b""),
    R.GET_HAS_UNIT_SUB_TOPIC_LIST: ({}, b""),
    R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ({}, b""),
    R.UPDATE_NAMESRV_CONFIG: ({}, b"orderMessageEnable=true\n"),
    R.GET_NAMESRV_CONFIG: ({}, b""),
    R.UNREGISTER_BROKER: ({}, b""),
}


def prepared(server: NameServer, code: int, version: int) -> RemotingCommand:
    fields, body = REQUESTS[code]
    texts = {key: str(value) for key, value in {**COMMON, **fields}.items()}
    if code == R.REGISTER_BROKER:
        body = registration(version)
    if code == R.UNREGISTER_BROKER:
        server.routes.register(BrokerIdentity("C", "a", 0, "127.0.0.1:1"), wrapper(version), [], 0)
    return RemotingCommand(code=code, version=401, ext_fields=texts, body=body)


async def ask(server: NameServer, request: RemotingCommand) -> int:
    answer: Any = server.handlers()[request.code](request, Channel())  # type: ignore[arg-type]
    if asyncio.iscoroutine(answer):
        answer = await asyncio.create_task(answer)
    code: int = answer.code
    return code


async def test_no_request_blocks_the_loop_of_a_large_name_server_for_5_ms(
    callback_times: Any,
) -> None:
    wrong = {}
    server = NameServer(port=0)
    assert server.handlers().keys() == REQUESTS.keys(), "each request code needs a line in REQUESTS"
    await fill(server)
    gc.collect()
    gc.disable()  # a pause of the collector must not count for a request
    try:
        with callback_times.measured():
            for code in REQUESTS:
                longest = []
                for version in range(1, ROUNDS + 1):
                    request = prepared(server, code, version)
                    await asyncio.sleep(0)
                    callback_times.reset()
                    assert await asyncio.create_task(ask(server, request)) == 0
                    longest.append(callback_times.longest_s)
                if median(longest) >= limit_s(LIMIT_S):
                    name = RequestCode(code).name
                    wrong[name] = f"{median(longest) * 1000:.1f} ms in {callback_times.place}"
    finally:
        gc.enable()
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())
