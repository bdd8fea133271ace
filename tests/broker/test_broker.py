"""A whole broker over TCP: restarts, ports, and starts that must fail."""

import socket
import subprocess

import msgspec
import pytest
from harness.servers import free_port

from congreve.base.errors import CongreveError
from congreve.broker.broker import Broker
from congreve.engine.errors import StoreLockedError
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import PullMessageRequestHeader

from .tool import commit, config_of, running


async def test_the_state_of_a_broker_survives_a_restart(tmp_path):
    config = config_of(tmp_path)
    async with running(config) as (tool, broker):
        await tool.create_topic("T", queues=3)
        await tool.send("T", b"kept")
        await tool.heart_beat("G", "T")
        await tool.ask(15, commit("G", "T", 1))
    async with running(config) as (tool, broker):
        assert broker.managers.metadata.topics.get("T").write_queue_nums == 3
        assert "G" in broker.managers.metadata.groups.table
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 1
        assert (await tool.send("T")).ext_fields["queueOffset"] == "1"


async def test_unknown_request_codes_are_refused(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        for code in (301, 403, 9999):
            answer = await tool.ask(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_invalid_bodies_and_headers_get_an_error_response(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        for code in (34, 41, 42, 46, 200):
            answer = await tool.ask(code, body=b'{"consumerDataSet":7')
            assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        for code in (11, 12, 14, 15, 17, 29, 30, 33, 36, 38, 202, 208, 222):
            answer = await tool.ask(code, {"queueId": "x"})
            assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark


async def test_several_brokers_run_in_one_process(tmp_path):
    async with (
        running(config_of(tmp_path / "a", "a")) as (one, _),
        running(config_of(tmp_path / "b", "b")) as (two, _),
    ):
        await one.create_topic("T")
        assert (await one.send("T")).code == 0
        assert (await two.ask(202, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_broker_runs_on_a_thread_of_its_own(tmp_path):
    with Broker(config_of(tmp_path)) as broker:
        with socket.create_connection(("127.0.0.1", broker.port), 3):
            pass
        port = broker.port
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1)


async def test_the_vip_port_serves_all_but_pulls(tmp_path):
    port = free_port()
    async with running(config_of(tmp_path, listen_port=port)) as (tool, _):
        tool.address = f"127.0.0.1:{port - 2}"
        await tool.create_topic("T")
        assert (await tool.send("T")).code == 0
        header = PullMessageRequestHeader(
            consumer_group="G",
            topic="T",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=1,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
        )
        answer = await tool.ask(RequestCode.PULL_MESSAGE, header.fields())
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_second_broker_on_the_same_store_does_not_start(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        with pytest.raises(StoreLockedError):
            await Broker(config_of(tmp_path)).start()
        assert (await tool.create_topic("T")).code == 0


async def test_the_error_for_a_port_in_use_is_one_line_and_the_store_is_released(tmp_path):
    async with running(config_of(tmp_path / "a")) as (_, broker):
        with pytest.raises(CongreveError, match=str(broker.port)):
            await Broker(config_of(tmp_path / "b", listen_port=broker.port)).start()
        assert not (tmp_path / "b").exists()
    async with running(config_of(tmp_path / "b")) as (tool, _):
        assert (await tool.create_topic("T")).code == 0


async def test_a_second_start_of_a_broker_is_an_error(tmp_path):
    async with Broker(config_of(tmp_path)) as broker:
        with pytest.raises(CongreveError, match="can start only once"):
            await broker.start()
    with pytest.raises(CongreveError, match="can start only once"):
        await broker.start()


async def test_a_full_disk_is_reported_until_it_has_free_space(small_disk):
    disk = small_disk(24 << 20)
    async with running(config_of(disk / "s")) as (tool, _):
        await tool.create_topic("T")
        while (refused := await tool.send("T", bytes(1 << 20))).code == 0:
            pass
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "No space left" in refused.remark
        writable = (await tool.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]["storeWritable"]
        assert writable.startswith("false") and "No space left" in writable
        subprocess.run(["mount", "-o", "remount,size=512m", str(disk)], check=True)
        assert (await tool.send("T", bytes(1 << 20))).code == 0
        writable = (await tool.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]["storeWritable"]
        assert writable == "true"


@pytest.mark.parametrize(
    ("settings", "backend"),
    [({"flush_disk_type": "ASYNC_FLUSH"}, "mmap"), ({"io_backend": "pool"}, "pool")],
)
async def test_runtime_info_names_the_backend_in_use(tmp_path, settings, backend):
    config = config_of(tmp_path / "s")
    store = msgspec.structs.replace(
        config.store, transient_store_pool_size=1, transient_store_pool_locked=False, **settings
    )
    async with running(msgspec.structs.replace(config, store=store)) as (tool, _):
        table = (await tool.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert table["ioBackend"] == backend
