"""The gate: white addresses, groups of retry topics, foreign messages, changes while it runs."""

import asyncio
import json
import logging
import time
from collections import Counter
from pathlib import Path

import pytest
from harness import servers
from harness.eventually import eventually

from congreve.broker.broker import Broker
from congreve.broker.config_parts import ReplicationConfig
from congreve.broker.errors import ConfigError
from congreve.records.record import decode_record
from congreve.remoting.messages.admin_bodies import AclConfig
from congreve.remoting.messages.bodies import HeartbeatData, ProducerData
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import Connection

from ..guarded import FILE, SECRET, guarded
from ..tool import Tool, config_of, local_config, running

HALF = "PGROUP\x01P\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01u"
PULL = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "60000",
    "subVersion": "0",
    "subscription": "*",
}


def refused(answer: RemotingCommand, text: str) -> bool:
    return answer.code == 1 and text in (answer.remark or "")


async def test_a_white_address_needs_no_key(tmp_path: Path) -> None:
    white = FILE.replace("globalWhiteRemoteAddresses:", "globalWhiteRemoteAddresses: [127.0.0.*]")
    async with guarded(tmp_path, white) as (_, tools):
        assert (await tools.of(None).create_topic("T")).code == 0
        assert (await tools.of("both-of-T", "a-wrong-secret").send("T")).code == 0


async def test_the_white_address_of_an_account_needs_a_signature_and_no_permission(
    tmp_path: Path,
) -> None:
    text = FILE + f"- {{accessKey: from-here, secretKey: {SECRET}, whiteRemoteAddress: 127.0.0.1}}"
    async with guarded(tmp_path, text) as (_, tools):
        await tools.of("administrator").create_topic("T")
        assert (await tools.of("from-here").send("T")).code == 0
        assert refused(await tools.of("from-here", "a-wrong-secret").send("T"), "signature")
        assert refused(await tools.of("from-here").create_topic("U"), "Need admin permission")


async def test_retry_topics_belong_to_their_group(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, tools):
        await tools.of("administrator").heart_beat("G", "T")
        assert (await tools.of("sub-of-T").send("%RETRY%G")).code == 0
        for sender in ("pub-of-T", "other-topic"):
            assert refused(await tools.of(sender).send("%RETRY%G"), "group:G")
        pull = PULL | {"topic": "%RETRY%G", "sysFlag": "4"}
        assert (await tools.of("sub-of-T").ask(11, pull)).code == 0
        assert refused(await tools.of("other-topic").ask(11, pull), "group:G")


async def test_a_message_of_another_account_is_neither_sent_back_nor_shown(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, tools):
        admin = tools.of("administrator")
        await admin.create_topic("T")
        await admin.heart_beat("H", "U")
        offset = broker.store.log.max_offset
        await admin.send("T", b"not for others")
        back = {"offset": str(offset), "group": "H", "delayLevel": "1", "originTopic": "U"}
        other = tools.of("other-topic")
        assert refused(await other.ask(36, back), "topic:T")
        assert refused(await other.ask(33, {"offset": str(offset)}), "topic:T")
        for nowhere in ("7", "-1", "x", "9" * 30, ""):
            assert refused(await other.ask(33, {"offset": nowhere}), "no message at offset")


async def test_traces_may_be_sent_without_a_permission_but_not_read(tmp_path: Path) -> None:
    async with guarded(tmp_path, trace_topic_enable=True) as (_, tools):
        sub = tools.of("sub-of-T")
        assert (await sub.send("RMQ_SYS_TRACE_TOPIC")).code == 0
        pull = PULL | {"topic": "RMQ_SYS_TRACE_TOPIC"}
        assert refused(await sub.ask(11, pull), "RMQ_SYS_TRACE_TOPIC")


async def test_a_change_of_accounts_answers_pulls_that_lost_their_permission(
    tmp_path: Path,
) -> None:
    async with guarded(
        tmp_path,
    ) as (broker, tools):
        admin, sub, both = (tools.of(key) for key in ("administrator", "sub-of-T", "both-of-T"))
        await admin.create_topic("T")
        for client in (sub, both):
            await client.heart_beat("G", "T")
        pulls = [asyncio.ensure_future(client.ask(11, PULL)) for client in (sub, both)]
        assert broker._paths is not None
        async with asyncio.timeout(30):
            while broker._paths.waiting()[1] < 2:
                await asyncio.sleep(0.01)
        path = tmp_path / "conf" / "plain_acl.yml"
        path.write_text(FILE.replace("topicPerms: [T=SUB]", "topicPerms: [T=DENY]"))
        assert refused(await asyncio.wait_for(pulls[0], 30), "topic:T")
        assert (await admin.send("T", b"news")).code == 0
        assert (await asyncio.wait_for(pulls[1], 30)).code == 19  # it pulls again
        assert b"news" in (await both.ask(11, PULL)).body
        assert refused(await sub.ask(11, PULL), "topic:T")
        path.write_text("accounts: [")
        await asyncio.sleep(1.5)  # a file that is broken changes nothing
        assert refused(await sub.ask(11, PULL), "topic:T")
        assert (await admin.send("T")).code == 0


async def test_a_producer_group_is_of_the_accounts_that_may_publish_with_it(
    tmp_path: Path,
) -> None:
    text = (
        FILE + f"- {{accessKey: without-P, secretKey: {SECRET}, topicPerms: [T=PUB],"
        " groupPerms: [own=PUB]}"
    )
    settings = {"transaction_check_interval": 50, "transaction_time_out": 0}
    async with guarded(tmp_path, text, **settings) as (broker, tools):
        admin, stranger = tools.of("administrator"), tools.of("without-P")
        await admin.create_topic("T")
        now_ms = time.time_ns() // 1_000_000
        assert refused(await stranger.send_half("T", now_ms), "group:P")
        # Properties make a half message, whatever the header says of its type and its group.
        common = {"b": "T", "c": "TBW102", "d": "4", "e": "0", "g": "1", "h": "0"}
        for fields in (
            {"a": "P", "f": "0", "i": HALF},
            {"a": "own", "f": "4", "i": HALF},
            {"a": "P", "f": "-12"},
            {"a": "P", "f": "4.0"},
        ):
            answer = await stranger.ask(310, common | fields, b"half")
            assert refused(answer, "group:P"), fields
        asked: dict[str, int] = Counter()
        producers = []
        for key in ("without-P", "both-of-T", "other-topic"):

            def check(request: RemotingCommand, connection: Connection, key: str = key) -> None:
                asked[key] += 1

            sign = Credentials(access_key=key, secret_key=SECRET).sign
            client = RemotingClient(before_request=sign, handlers={39: check})
            beat = HeartbeatData(
                client_id=key, producer_data_set=[ProducerData(group_name="P")]
            ).encode()
            assert (await Tool(tools.address, client).ask(34, body=beat)).code == 0
            producers.append(client)
        assert (await tools.of("both-of-T").send_half("T", now_ms)).code == 0
        # Now lanes serve half messages: not one of another group than that of its header.
        other = common | {"a": "own", "f": "4", "i": HALF}
        assert refused(await stranger.ask(310, other, b"half"), "group:P")
        await eventually(lambda: asked["both-of-T"] >= 6)
        assert asked.keys() == {"both-of-T"}
        record = broker.managers.transactions.service.half_at(0)
        assert record is not None
        half = 0, record.physical_offset
        assert refused(await stranger.commit_half(*half), "group:P")
        assert refused(await tools.of("other-topic").commit_half(*half), "topic:T")
        assert (await tools.of("both-of-T").commit_half(*half)).code == 0
        for client in producers:
            await client.close()


async def test_accounts_are_changed_over_the_network(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, tools):
        admin = tools.of("administrator")
        await admin.create_topic("T")
        new = {"accessKey": "newcomer", "secretKey": SECRET, "topicPerms": "T=PUB,U=SUB"}
        assert (await admin.ask(50, new)).code == 0
        assert (await tools.of("newcomer").send("T")).code == 0
        more = {"accessKey": "newcomer", "topicPerms": "T=SUB", "admin": "false"}
        assert (await admin.ask(50, more)).code == 0
        assert refused(await tools.of("newcomer").send("T"), "topic:T")
        shown = await admin.ask(54)
        assert SECRET.encode() not in shown.body
        listed = AclConfig.decode(shown.body).plain_access_configs
        assert [each.access_key for each in listed][-1] == "newcomer"
        assert {each.secret_key for each in listed} == {None}
        versions = await admin.ask(52)
        path = str(tmp_path / "conf" / "plain_acl.yml")
        assert json.loads(versions.ext_fields["allAclFileVersion"])[path]["counter"] == 2
        assert json.loads(versions.ext_fields["version"])["counter"] == 2
        assert SECRET not in str(versions)
        assert (await admin.ask(51, {"accessKey": "newcomer"})).code == 0
        assert refused(await tools.of("newcomer").send("T"), "No acl config")
        assert (await admin.ask(51, {"accessKey": "newcomer"})).code == 210
        assert (await admin.ask(50, {"accessKey": "newcomer"})).code == 209
        assert (await admin.ask(53, {"globalWhiteAddrs": "127.0.0.1"})).code == 0
        assert (await tools.of(None).send("T")).code == 0
        elsewhere = {"globalWhiteAddrs": "*", "aclFileFullPath": "/etc/hosts.yml"}
        assert (await admin.ask(53, elsewhere)).code == 211


async def test_without_access_control_there_are_no_accounts(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, _):
        codes = [(await tool.ask(code, fields)).code for code, fields in ACCOUNT_REQUESTS]
        assert codes == [209, 210, 1, 211, 1]


ACCOUNT_REQUESTS = [
    (50, {"accessKey": "newcomer", "secretKey": SECRET}),
    (51, {"accessKey": "newcomer"}),
    (52, {}),
    (53, {"globalWhiteAddrs": "*"}),
    (54, {}),
]


async def test_every_request_of_an_administrator_is_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "congreve.broker.accounts.audit")
    async with guarded(tmp_path) as (_, tools):
        await tools.of("administrator").ask(50, {"accessKey": "newcomer", "secretKey": "hid\nden"})
        await tools.of("both-of-T").create_topic("V")
        await tools.of(None).create_topic("V")
        await tools.of("administrator").ask(25, body=b"maxTopics=7")
        await tools.of("administrator").send("V")
    lines = [json.loads(each.message) for each in caplog.records if "audit" in each.name]
    logged = [(each["accessKey"], each["request"], each["code"]) for each in lines]
    assert logged == [
        ("administrator", "UPDATE_AND_CREATE_ACL_CONFIG", 0),
        ("both-of-T", "UPDATE_AND_CREATE_TOPIC", 1),
        ("administrator", "UPDATE_BROKER_CONFIG", 0),
    ]
    assert lines[0]["address"].startswith("127.0.0.1:")
    assert lines[0]["fields"] == {"accessKey": "newcomer"}
    assert lines[1]["fields"]["topic"] == "V"
    assert lines[2]["body"] == "maxTopics=7"
    assert SECRET not in caplog.text
    assert "hid" not in caplog.text


async def test_what_slaves_repeat_is_audited_only_if_it_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "congreve.broker.accounts.audit")
    port = servers.free_port()
    settings = {"broker_access_key": "administrator", "acl_open_name_servers": True}
    ha = ReplicationConfig(listen_port=port + 1)
    async with guarded(tmp_path, listen_port=port, replication=ha, **settings) as (broker, tools):
        slave_folder = tmp_path / "slave"
        slave_folder.mkdir()
        of_slave = {"broker_id": 1, "broker_role": "SLAVE"}
        ha = ReplicationConfig(listen_port=-1, master_address=f"127.0.0.1:{port + 1}")
        await tools.of("administrator").create_topic("T")
        async with guarded(slave_folder, replication=ha, **settings, **of_slave) as (slave, _):
            await tools.of("administrator").send("T")
            await eventually(lambda: slave.store.log.max_offset == broker.store.log.max_offset)
            await eventually(lambda: "T" in slave.managers.metadata.topics.table)
            await asyncio.sleep(1.5)
        await tools.of("both-of-T").ask(43)
    lines = [json.loads(each.message) for each in caplog.records if "audit" in each.name]
    logged = [(each["accessKey"], each["request"]) for each in lines]
    assert logged == [
        ("administrator", "UPDATE_AND_CREATE_TOPIC"),
        ("both-of-T", "GET_ALL_CONSUMER_OFFSET"),
    ]


async def test_the_vip_port_is_guarded(tmp_path: Path) -> None:
    port = servers.free_port()
    async with guarded(tmp_path, listen_port=port) as (_, tools):
        await tools.of("administrator").create_topic("T")
        vip = f"127.0.0.1:{port - 2}"
        assert (await tools.of("both-of-T", address=vip).send("T")).code == 0
        assert refused(await tools.of("other-topic", address=vip).send("T"), "topic:T")
        assert refused(await tools.of(None, address=vip).send("T"), "No accessKey")


async def test_a_forged_signature_is_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, tools):
        await tools.of("administrator").create_topic("T")
        taken: list[dict[str, str]] = []
        signing = tools.of("both-of-T")
        await signing.send("T")
        client = RemotingClient(before_request=lambda request: taken.append(request.ext_fields))
        plain = Tool(tools.address, client)
        await plain.send("T")
        await client.close()
        fields = taken[0] | {"AccessKey": "both-of-T", "Signature": "bm90IHRoZSBvbmU="}
        assert refused(await tools.of(None).ask(10, fields, b"x"), "Check signature failed")


@pytest.mark.parametrize(
    ("text", "settings", "error"),
    [
        ("accounts: []", {}, "there is no account"),
        (FILE, {"broker_access_key": "unknown-key"}, "brokerAccessKey"),
        ("accounts: [", {}, "cannot read"),
    ],
)
async def test_a_broker_without_a_usable_account_does_not_start(
    tmp_path: Path, text: str, settings: dict[str, object], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        async with guarded(tmp_path, text, **settings):
            pass
    assert not (tmp_path / "store").exists()


def test_access_control_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match="aclFolder"):
        Broker(local_config(acl_enable=True))


async def test_a_delayed_message_needs_the_permission_of_its_own_topic(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, tools):
        admin = tools.of("administrator")
        await admin.create_topic("T")
        offset = broker.store.log.max_offset
        fields = {"producerGroup": "P", "topic": "T", "defaultTopic": "TBW102"}
        numbers = {"defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "flag": "0"}
        delayed = {"bornTimestamp": "1", "properties": "DELAY\x0118"}
        await admin.ask(10, fields | numbers | delayed, b"later")
        view = broker.store.read(offset)
        assert view is not None
        assert decode_record(view).topic == "SCHEDULE_TOPIC_XXXX"
        assert (await tools.of("sub-of-T").ask(33, {"offset": str(offset)})).code == 0
        assert refused(await tools.of("pub-of-T").ask(33, {"offset": str(offset)}), "topic:T")
