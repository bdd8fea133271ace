"""A whole broker over TCP: the requests of tools."""

import asyncio

import pytest

from congreve.broker.metadata.table_text import TableBody
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.codes import ResponseCode

from .tool import commit, config_of, running


async def test_a_tool_creates_changes_and_deletes_topics(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        assert (await tool.create_topic("T")).code == 0
        assert (await tool.create_topic("TBW102")).code == 1
        assert (await tool.create_topic("bad name")).code == 1
        await tool.send("T")
        await tool.send("T")
        stats = await tool.json(202, {"topic": "T"})
        first = fastjson.loads(min(stats["offsetTable"]))
        assert first == {"brokerName": "b", "queueId": 0, "topic": "T"}
        assert stats["offsetTable"][min(stats["offsetTable"])]["maxOffset"] == 2
        table = (await tool.json(21))["topicConfigTable"]
        assert table["T"]["readQueueNums"] == 2
        assert "TBW102" in (await tool.json(305))["topicList"]
        await tool.ask(15, commit("G", "T", 2))
        assert (await tool.ask(215, {"topic": "T"})).code == 0
        assert (await tool.ask(202, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST
        assert broker.managers.metadata.offsets.query("G", "T", 0) == -1
        await tool.create_topic("T")
        assert (await tool.send("T")).ext_fields["queueOffset"] == "0"


async def test_a_tool_creates_changes_and_deletes_groups(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        body = fastjson.dumps({"groupName": "G", "retryMaxTimes": 3}).encode()
        assert (await tool.ask(200, body=body)).code == 0
        assert (await tool.json(201))["subscriptionGroupTable"]["G"]["retryMaxTimes"] == 3
        await tool.create_topic("T")
        await tool.send("T")
        await tool.ask(15, commit("G", "T", 1))
        stats = await tool.json(208, {"consumerGroup": "G"})
        progress = stats["offsetTable"][min(stats["offsetTable"])]
        assert (progress["brokerOffset"], progress["consumerOffset"]) == (1, 1)
        assert progress["lastTimestamp"] > 0
        assert (await tool.json(300, {"topic": "T"}))["groupList"] == ["G"]
        spans = await tool.json(303, {"topic": "T", "group": "G"})
        assert len(spans["consumeTimeSpanSet"]) == 2
        assert (await tool.json(317, {"isOrder": "false"}))["totalDiff"] == 0
        await tool.ask(314, {"srcGroup": "G", "destGroup": "H", "topic": "T"})
        assert broker.managers.metadata.offsets.query("H", "T", 0) == 1
        assert (await tool.json(43))["offsetTable"]["T@G"] == {"0": 1}
        await tool.ask(207, {"groupName": "G", "removeOffset": "true"})
        assert "G" not in broker.managers.metadata.groups.table
        assert broker.managers.metadata.offsets.topics_of("G") == []


async def test_the_large_answers_are_encoded_again_only_after_a_change(tmp_path, monkeypatch):
    encoded = []
    encode_steps = TableBody.encode_steps

    def counting(body):
        encoded.append(body._name)
        return encode_steps(body)

    monkeypatch.setattr(TableBody, "encode_steps", counting)
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        for offset in (1, 2, 2):
            await tool.ask(15, commit("G", "T", offset))
            encoded.clear()
            for _ in range(3):
                await tool.ask(21)
                await tool.ask(201)
                assert (await tool.json(43))["offsetTable"]["T@G"] == {"0": offset}
        assert encoded == []
        await tool.create_topic("U")
        await tool.ask(200, body=b'{"groupName":"G"}')
        assert "U" in (await tool.json(21))["topicConfigTable"]
        assert "G" in (await tool.json(201))["subscriptionGroupTable"]
        assert encoded == ["topicConfigTable", "subscriptionGroupTable"]


async def test_the_configuration_is_shown_changed_and_saved(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("# mine\nbrokerPermission=6\nmine=1\n")
    async with running(config_of(tmp_path / "store"), config_path=path) as (tool, broker):
        shown = await tool.ask(26)
        assert b"brokerName=b\n" in shown.body
        assert fastjson.loads(shown.ext_fields["version"])["counter"] == 0
        assert (await tool.ask(25, body=b"brokerPermission=4\n")).code == 0
        assert not broker.config.writable
        assert path.read_text() == "# mine\nbrokerPermission=4\nmine=1\n"
        later = await tool.ask(25, body=b"flushDiskType=ASYNC_FLUSH\nfileReservedTime=9\n")
        assert (later.code, later.remark) == (0, "after a restart: flushDiskType")
        assert broker.store.config.sync_flush and broker.store.config.file_reserved_time == 9
        assert "flushDiskType=ASYNC_FLUSH\n" in path.read_text()
        assert fastjson.loads((await tool.ask(26)).ext_fields["version"])["counter"] == 2
        assert (await tool.ask(25, body=b"defaultTopicQueueNums=3\n")).code == 0
        assert broker.managers.metadata.topics.table["TBW102"].write_queue_nums == 3


HOSTILE_CHANGES = (
    b"brokerPermission=x",
    b"timerMaxDelaySec=9223372036854775807",
    b"maxTransferCountOnMessageInMemory=2147483647",
    b"storePathRootDir=/tmp/elsewhere",
    b"storePathCommitLog=../elsewhere",
    b"listenPort=1234",
    b"bindAddress=127.0.0.1",
    b"namesrvAddr=127.0.0.1:1",
    b"ioBackend=uring",
    b"foo=bar",
    b"foo=\\ud800",
    b"deleteWhen=04\\u0000",
    b"messageDelayLevel=1s\\ud800",
    b"messageDelayLevel=" + b"9" * 4000 + b"d",
    b"messageDelayLevel=" + b"1s " * 2000,
    b"deleteWhen=\xff",
    b"startAcceptSendRequestTimeStamp=" + b"9" * 400,
    b"defaultTopicQueueNums=0",
    b"defaultTopicQueueNums=2147483647",
    b"flushDiskType=NEVER",
    b"=",
    b"",
    b"# nothing\n" * 8000,
)


@pytest.mark.parametrize("change", HOSTILE_CHANGES, ids=lambda text: repr(text[:40]))
async def test_a_refused_change_of_settings_has_no_effect_and_is_not_saved(tmp_path, change):
    path = tmp_path / "broker.conf"
    path.write_text("# mine\nbrokerPermission=6\n")
    async with running(config_of(tmp_path / "store"), config_path=path) as (tool, _):
        before = await tool.ask(26)
        answer = await tool.ask(25, body=b"fileReservedTime=9\n" + change if change else b"")
        assert answer.code == 1
        assert 0 < len(answer.remark) < 400 and "\n" not in answer.remark
        assert (await tool.ask(26)).body == before.body
        assert path.read_text() == "# mine\nbrokerPermission=6\n"


async def test_a_change_of_settings_that_cannot_be_saved_is_refused(tmp_path):
    path = tmp_path / "conf" / "broker.conf"
    path.parent.mkdir()
    for text in (None, "brokerPermission=x\n", "key=\\u00zz\n"):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        async with running(config_of(tmp_path / "store"), config_path=path) as (tool, broker):
            answer = await tool.ask(25, body=b"fileReservedTime=9\n")
            assert (answer.code, broker.store.config.file_reserved_time) == (1, 72)
            assert "broker.conf" in answer.remark
        assert text is None or path.read_text() == text


async def test_saving_settings_keeps_links_and_permissions_of_the_file(tmp_path):
    path = tmp_path / "real.conf"
    path.write_text("secretKey=1234\n")
    path.chmod(0o600)
    link = tmp_path / "broker.conf"
    link.symlink_to(path)
    async with running(config_of(tmp_path / "store"), config_path=link) as (tool, _):
        assert (await tool.ask(25, body=b"fileReservedTime=9\n")).code == 0
        assert b"1234" not in (await tool.ask(26)).body
    assert link.is_symlink() and path.read_text() == "secretKey=1234\nfileReservedTime=9\n"
    assert path.stat().st_mode & 0o777 == 0o600


async def test_runtime_info_has_the_fields_that_mqadmin_reads(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        await tool.send("T")
        table = (await tool.json(28))["table"]
        assert table["brokerVersion"] == "401"
        assert table["msgPutTotalTodayNow"] == "1"
        for key in ("putTps", "getTransferedTps", "getTotalTps", "getFoundTps", "getMissTps"):
            assert len([float(part) for part in table[key].split()]) == 3
        for key in (
            "msgPutTotalYesterdayMorning",
            "msgGetTotalTodayMorning",
            "sendThreadPoolQueueSize",
            "pullThreadPoolQueueHeadWaitTimeMills",
            "queryThreadPoolQueueCapacity",
            "earliestMessageTimeStamp",
            "commitLogDiskRatio",
            "commitLogMaxOffset",
            "pageCacheLockTimeMills",
        ):
            assert float(table[key]) >= 0


async def test_stored_messages_are_found_by_offset_time_key_and_id(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        sent = await tool.send("T", b"one")
        queue = {"topic": "T", "queueId": "0"}
        assert (await tool.ask(30, queue)).ext_fields["offset"] == "1"
        assert (await tool.ask(31, queue)).ext_fields["offset"] == "0"
        earliest = int((await tool.ask(32, queue)).ext_fields["timestamp"])
        at = {**queue, "timestamp": str(earliest)}
        assert (await tool.ask(29, at)).ext_fields["offset"] == "0"
        offset = int(sent.ext_fields["msgId"][16:], 16)
        assert b"one" in (await tool.ask(33, {"offset": str(offset)})).body
        missing = await tool.ask(33, {"offset": str(offset + 1)})
        assert missing.code == 1 and str(offset + 1) in missing.remark
        query = {
            "topic": "T",
            "key": "k1",
            "maxNum": "10",
            "beginTimestamp": "0",
            "endTimestamp": str(2**62),
        }
        for _ in range(100):
            found = await tool.ask(12, query)
            if found.code == 0:
                break
            await asyncio.sleep(0.02)
        assert b"one" in found.body
        assert (await tool.ask(12, {**query, "key": "other"})).code == 22
