"""A node inside a program: name server, broker and their clients."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

import congreve
from congreve.broker.errors import BrokerError, ConfigError
from congreve.client import SyncLitePullConsumer, SyncProducer
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.transport.local_address import LOOPBACK
from tests.harness.name_server_peer import Peer

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "flushDiskType": "ASYNC_FLUSH"}
MESSAGE = congreve.Message(topic="orders", body=b"hello")


def test_a_program_without_a_loop_sends_and_polls(tmp_path: Path) -> None:
    with congreve.serve(tmp_path, **SMALL) as node:
        assert node.address == node.name_server.address != node.broker.address
        with node.producer("p") as producer:
            producer.send(MESSAGE)
        with node.consumer("c", {"orders": "*"}) as consumer:
            assert [message.body for message in consumer.poll()] == [b"hello"]
    names = {thread.name for thread in threading.enumerate()}
    assert not [name for name in names if name.startswith("congreve")]


def test_a_notebook_starts_and_stops_a_node_that_says_where_it_is(tmp_path: Path) -> None:
    serving = congreve.serve(tmp_path, **SMALL)
    assert repr(serving) == f"<congreve.serve({str(tmp_path)!r}): use `with`, or start()>"
    node = serving.start()
    with node.producer("p") as producer:
        producer.send(MESSAGE)
    running = f"name server {node.address}, broker {node.broker.address}"
    assert repr(node) == f"<Node: {running}, files in {str(tmp_path)!r}>"
    with pytest.raises(BrokerError, match=r"has started its node: call congreve\.serve\(\) again"):
        serving.start()
    node.stop()
    node.stop()
    assert repr(node) == f"<Node: stopped, files in {str(tmp_path)!r}>"
    with congreve.serve(tmp_path, **SMALL) as again:
        again.stop()
        assert "stopped" in repr(again)


async def test_an_async_node_can_be_stopped_early(tmp_path: Path) -> None:
    serving = congreve.serve(tmp_path, **SMALL)
    async with serving as node:
        assert repr(node).startswith("<AsyncNode: name server ")
        await node.stop()
        assert repr(node).startswith("<AsyncNode: stopped, ")
    with pytest.raises(BrokerError, match="call congreve"):
        await serving.__aenter__()


def test_one_message_takes_less_than_40_mib_of_disk(tmp_path: Path) -> None:
    with congreve.serve(tmp_path) as node:
        with node.producer("p") as producer:
            producer.send(MESSAGE)
        files = [path.stat() for path in tmp_path.rglob("*") if path.is_file()]
        assert sum(file.st_blocks for file in files) * 512 < 40 << 20


def test_files_keep_the_sizes_of_the_first_start(tmp_path: Path) -> None:
    with congreve.serve(tmp_path):
        pass
    kept = {"mappedFileSizeCommitLog": "33554432", "maxHashSlotNum": "250000"}
    path = tmp_path / "broker.conf"
    path.write_text(f"storePathRootDir={tmp_path}/store\nlistenPort=0\nbrokerIP1={LOOPBACK}\n")
    with congreve.Broker.from_conf(path) as broker:
        assert kept.items() <= broker.config.as_properties().items()
    path.write_text(f"storePathRootDir={tmp_path}/store\nmappedFileSizeCommitLog=1073741824\n")
    with pytest.raises(ConfigError, match=r"broker.conf:2: mappedFileSizeCommitLog=1073741824: "):
        congreve.Broker.from_conf(path)


def test_small_files_hold_the_largest_message(tmp_path: Path) -> None:
    largest = 8 << 20
    with (
        congreve.serve(tmp_path, maxMessageSize=largest) as node,
        node.producer("p", max_message_size=largest) as producer,
    ):
        producer.send(congreve.Message(topic="orders", body=os.urandom(largest - 4096)))
        size = node.broker.config.store.mapped_file_size_commit_log
    assert size == 64 << 20


def test_a_listener_is_called(tmp_path: Path) -> None:
    seen = threading.Event()
    with congreve.serve(tmp_path, **SMALL) as node:
        with node.producer("p") as producer:
            producer.send(MESSAGE)
        with node.push_consumer("c", {"orders": "*"}, lambda _: seen.set()):
            assert seen.wait(30)


async def test_a_program_with_a_loop_sends_and_iterates(tmp_path: Path) -> None:
    async with asyncio.timeout(90), congreve.serve(tmp_path, **SMALL) as node:
        async with node.producer("p") as producer:
            await producer.send(MESSAGE)
        async with node.consumer("c", {"orders": "*"}) as consumer:
            async for message in consumer:
                assert message.body == b"hello"
                break


def test_messages_and_settings_survive_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with congreve.serve(tmp_path, brokerName="b", maxTopics=77, **SMALL) as node:
            assert (node.broker.config.broker_name, node.broker.config.limits.max_topics) == (
                "b",
                77,
            )
            with node.producer("p") as producer:
                producer.send(MESSAGE)
    stored = congreve.open_store(tmp_path)
    assert sum(queue.max for queue in stored.queues("orders")) == 2


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"flush_disk_type": "ASYNC_FLUSH"}, "did you mean flushDiskType"),
        ({"maxTopics": 0}, "maxTopics=0"),
        ({"listenPort": "any"}, "listenPort='any'"),
        ({"ioBackend": "tape"}, "tape"),
        ({"namesrvAddr": "127.0.0.1:9876"}, "its own name server"),
    ],
)
def test_an_invalid_setting_is_reported_before_any_file_is_created(
    settings: dict[str, object], named: str, tmp_path: Path
) -> None:
    with pytest.raises(congreve.CongreveError, match=named):
        congreve.serve(tmp_path / "data", **settings)
    assert not list(tmp_path.iterdir())


def test_a_node_that_cannot_start_leaves_no_server_running(tmp_path: Path) -> None:
    with congreve.serve(tmp_path, **SMALL) as node:
        port = node.name_server.port
        with pytest.raises(congreve.CongreveError), congreve.serve(tmp_path, **SMALL):
            pass
        with (
            pytest.raises(congreve.CongreveError),
            congreve.serve(tmp_path / "other", namesrv_port=port, **SMALL),
        ):
            pass
    with congreve.serve(tmp_path, namesrv_port=port, **SMALL):
        pass


def test_a_name_server_serves_a_program_without_a_loop() -> None:
    with congreve.NameServer(port=0) as server:
        assert server.address == f"{LOOPBACK}:{server.port}" and server.port


def conf(folder: Path, *lines: str) -> Path:
    path = folder / "broker.conf"
    own = f"listenPort=0\nbrokerIP1={LOOPBACK}\nstorePathRootDir={folder / 'store'}\n"
    own += "mappedFileSizeCommitLog=1048576\n"
    path.write_text(own + "\n".join(lines))
    return path


def test_a_broker_conf_is_read_and_keys_without_effect_are_reported(tmp_path: Path) -> None:
    path = conf(tmp_path, "brokerName=a", "pullThreadPoolNums=8", "useEpollNativeSelector=true")
    with congreve.Broker.from_conf(path, brokerName="b") as broker:
        assert broker.unknown_keys == ("pullThreadPoolNums", "useEpollNativeSelector")
        assert broker.config.broker_name == "b"


def test_the_error_for_an_invalid_broker_conf_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"broker\.conf:5: maxTopics"):
        congreve.Broker.from_conf(conf(tmp_path, "maxTopics=many"))
    with pytest.raises(ConfigError, match="broker_name"):
        congreve.Broker.from_conf(conf(tmp_path), broker_name="b")


def test_a_broker_alone_serves_routes_to_its_clients_if_that_is_enabled(
    tmp_path: Path,
) -> None:
    path = conf(tmp_path, "answerRouteRequests=true", "defaultTopicQueueNums=3")
    with congreve.Broker.from_conf(path) as broker:
        with SyncProducer(broker.address, group="p") as producer:
            assert producer.send(MESSAGE).queue.queue_id < 3
        with SyncLitePullConsumer(broker.address, group="c", topics={"orders": "*"}) as consumer:
            assert [message.body for message in consumer.poll()] == [b"hello"]


@pytest.mark.parametrize("version", [317, 401])
@pytest.mark.parametrize("permission", [6, 4])
async def test_a_broker_returns_the_same_routes_as_its_name_server(
    permission: int, version: int, tmp_path: Path
) -> None:
    settings = {"answerRouteRequests": True, "brokerPermission": permission, **SMALL}
    async with (
        congreve.serve(tmp_path, **settings) as node,
        Peer(node.address) as name_server,
        Peer(node.broker.address) as broker,
    ):
        for topic in ("TBW102", "SELF_TEST_TOPIC", "nowhere"):
            asked = (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, b"", version)
            expected, answer = await name_server.call(*asked), await broker.call(*asked)
            assert (answer.code, answer.body) == (expected.code, expected.body)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_broker_alone_returns_no_routes_by_default_as_in_the_reference(
    tmp_path: Path,
) -> None:
    async with congreve.serve(tmp_path, **SMALL) as node, Peer(node.broker.address) as peer:
        answer = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert (answer.code, answer.remark) == (3, " request type 105 not supported")
