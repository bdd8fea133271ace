"""How long one request may hold the event loop of a big broker: every request code.

The tests measure the CPU time of the loop's thread within one callback in several rounds, so that
they pass on a busy machine.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from harness.slowness import limit_s, slowness

from congreve.broker.broker import Broker
from congreve.broker.group.clients import ClientChannel
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.bodies import ConsumerData
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand

from .big_broker import BigBroker, Member

T = TypeVar("T")

LIMIT_S = 0.005
ROUNDS = 15
ENOUGH = 3
PAUSE_S = 0.1

COMMON: dict[str, object] = {
    "topic": "T-50",
    "consumerGroup": "G-0",
    "group": "G-0",
    "producerGroup": "P-0",
    "clientID": "c-0",
    "clientId": "c-0",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "maxNum": 64,
    "sysFlag": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "commitOffset": 1,
    "timestamp": 0,
    "isForce": "true",
    "key": "k",
    "beginTimestamp": 0,
    "endTimestamp": 1 << 62,
    "offset": 0,
    "isOrder": "false",
    "srcGroup": "G-0",
    "destGroup": "G-1",
    "offline": "true",
    "compareGroup": "G-0",
    "filterGroups": "",
    "index": 0,
    "count": 2_000,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "readQueueNums": 8,
    "writeQueueNums": 8,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
    "bornTimestamp": 1,
    "flag": 0,
    "properties": "",
    "reconsumeTimes": 0,
    "unitMode": "false",
    "batch": "false",
}
V2 = dict(
    zip("abcdefghijkl", ("P-0", "T-50", "TBW102", 4, 0, 0, 1, 0, "", 0, "false", 16), strict=True)
)


def subscriptions(count: int) -> list[dict[str, Any]]:
    return [{"topic": f"T-{i}", "subString": "*", "subVersion": 1} for i in range(count)]


def heartbeat(group: str, topics: int) -> bytes:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions(topics),
        "unitMode": False,
    }
    return fastjson.dumps(
        {"clientID": "new", "consumerDataSet": [consumer], "producerDataSet": []}
    ).encode()


def locks(count: int) -> bytes:
    queues = [{"topic": f"T-{i}", "brokerName": "b", "queueId": 0} for i in range(count)]
    return fastjson.dumps({"consumerGroup": "G-0", "clientId": "c-0", "mqSet": queues}).encode()


R = RequestCode
# Each request's fields beside COMMON, its body, and the code of its answer; None: any code.
REQUESTS: dict[int, tuple[dict[str, object], bytes, int | None]] = {
    R.SEND_MESSAGE: ({}, b"x", None),
    R.SEND_MESSAGE_V2: (V2, b"x", None),
    R.SEND_BATCH_MESSAGE: (V2, b"", None),
    R.SEND_REPLY_MESSAGE: ({}, b"x", None),
    R.SEND_REPLY_MESSAGE_V2: (V2, b"x", None),
    R.CONSUMER_SEND_MSG_BACK: ({"delayLevel": 3}, b"", None),
    R.END_TRANSACTION: (
        {"tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8},
        b"",
        None,
    ),
    R.RESUME_CHECK_HALF_MESSAGE: ({"msgId": "0" * 32}, b"", None),
    R.PULL_MESSAGE: ({}, b"", None),
    R.LITE_PULL_MESSAGE: ({}, b"", None),
    R.RECALL_MESSAGE: ({"recallHandle": "djEgVCBi"}, b"", None),
    R.COUNT_DELAYED_MESSAGES: ({}, b"", 0),
    R.LIST_DELAYED_MESSAGES: ({}, b"", 0),
    R.AWAIT_TABLE_CHANGE: ({"member": 1}, b"", 0),
    R.QUERY_MESSAGE: ({}, b"", 22),
    R.VIEW_MESSAGE_BY_ID: ({}, b"", None),
    R.SEARCH_OFFSET_BY_TIMESTAMP: ({}, b"", 0),
    R.GET_MAX_OFFSET: ({}, b"", 0),
    R.GET_MIN_OFFSET: ({}, b"", 0),
    R.GET_EARLIEST_MSG_STORETIME: ({}, b"", 0),
    R.QUERY_CONSUME_QUEUE: ({}, b"", None),
    R.POP_MESSAGE: ({"pollTime": 0, "invisibleTime": 10_000, "initMode": 0}, b"", None),
    R.ACK_MESSAGE: ({"extraInfo": "0 1 1 0 0 b 0 0"}, b"", None),
    R.BATCH_ACK_MESSAGE: ({}, b'{"acks":[{"c":"G-0","t":"T-0","b":"BQ=="}]}', None),
    R.CHANGE_MESSAGE_INVISIBLETIME: (
        {"extraInfo": "0 1 1 0 0 b 0 0", "invisibleTime": 10_000},
        b"",
        None,
    ),
    R.NOTIFICATION: ({"pollTime": 0, "bornTime": 1}, b"", None),
    R.POLLING_INFO: ({}, b"", None),
    R.HEART_BEAT: ({}, heartbeat("G-0", 600), 0),
    R.UNREGISTER_CLIENT: ({}, b"", 0),
    R.QUERY_ASSIGNMENT: (
        {},
        b'{"topic":"T-0","consumerGroup":"G-0","clientId":"c-0","strategyName":"AVG"}',
        0,
    ),
    R.SET_MESSAGE_REQUEST_MODE: (
        {},
        b'{"topic":"T-0","consumerGroup":"G-0","mode":"POP"}',
        0,
    ),
    R.GET_ALL_MESSAGE_REQUEST_MODE: ({}, b"", 0),
    R.CHECK_CLIENT_CONFIG: (
        {},
        fastjson.dumps(
            {"subscriptionData": {"expressionType": "SQL92", "subString": "a > 1"}}
        ).encode(),
        None,
    ),
    R.GET_CONSUMER_LIST_BY_GROUP: ({}, b"", 0),
    R.QUERY_CONSUMER_OFFSET: ({}, b"", 0),
    R.UPDATE_CONSUMER_OFFSET: ({}, b"", 0),
    R.LOCK_BATCH_MQ: ({}, locks(2_000), 0),
    R.UNLOCK_BATCH_MQ: ({}, locks(2_000), 0),
    R.GET_CONSUMER_CONNECTION_LIST: ({}, b"", 0),
    R.GET_PRODUCER_CONNECTION_LIST: ({}, b"", 0),
    R.GET_ALL_PRODUCER_INFO: ({}, b"", 0),
    R.GET_CONSUMER_RUNNING_INFO: ({}, b"", 0),
    R.CONSUME_MESSAGE_DIRECTLY: ({"msgId": "0" * 32}, b"", None),
    R.INVOKE_BROKER_TO_RESET_OFFSET: ({"timestamp": -1}, b"", 0),
    R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ({}, b"", 0),
    R.UPDATE_AND_CREATE_TOPIC: ({"topic": "T-new"}, b"", 0),
    R.UPDATE_AND_CREATE_TOPIC_LIST: (
        {},
        b'{"topicConfigList":[{"topicName":"T-new"}]}',
        0,
    ),
    R.GET_TOPIC_CONFIG: ({"topic": "T-1"}, b"", 0),
    R.DELETE_TOPIC_IN_BROKER: ({"topic": "T-new"}, b"", 0),
    R.GET_ALL_TOPIC_CONFIG: ({}, b"", 0),
    R.GET_TOPIC_STATS_INFO: ({"topic": "Wide"}, b"", 0),
    R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: ({}, b"", 0),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ({}, b'{"groupName":"G-new"}', 0),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (
        {},
        b'{"groupConfigList":[{"groupName":"G-new"}]}',
        0,
    ),
    R.GET_SUBSCRIPTIONGROUP_CONFIG: ({"group": "G-0"}, b"", 0),
    R.DELETE_SUBSCRIPTIONGROUP: ({"groupName": "G-new", "removeOffset": "true"}, b"", 0),
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ({}, b"", 0),
    R.GET_ALL_CONSUMER_OFFSET: ({}, b"", 0),
    R.GET_CONSUME_STATS: ({"topic": ""}, b"", 0),
    R.GET_BROKER_CONSUME_STATS: ({}, b"", 0),
    R.QUERY_TOPIC_CONSUME_BY_WHO: ({}, b"", 0),
    R.QUERY_CONSUME_TIME_SPAN: ({"topic": "Wide"}, b"", 0),
    R.CLONE_GROUP_OFFSET: ({"topic": ""}, b"", 0),
    R.QUERY_CORRECTION_OFFSET: ({}, b"", 0),
    R.GET_BROKER_CONFIG: ({}, b"", 0),
    R.UPDATE_AND_CREATE_ACL_CONFIG: ({"accessKey": "user"}, b"", None),
    R.DELETE_ACL_CONFIG: ({"accessKey": "user"}, b"", None),
    R.GET_BROKER_CLUSTER_ACL_INFO: ({}, b"", None),
    R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ({"globalWhiteAddrs": "10.0.0.1"}, b"", None),
    R.GET_BROKER_CLUSTER_ACL_CONFIG: ({}, b"", None),
    R.AUTH_CREATE_USER: ({"username": "user"}, b"{}", None),
    R.AUTH_UPDATE_USER: ({"username": "user"}, b"{}", None),
    R.AUTH_DELETE_USER: ({"username": "user"}, b"", None),
    R.AUTH_GET_USER: ({"username": "user"}, b"", None),
    R.AUTH_LIST_USER: ({}, b"", None),
    R.AUTH_CREATE_ACL: ({"subject": "User:user"}, b"{}", None),
    R.AUTH_UPDATE_ACL: ({"subject": "User:user"}, b"{}", None),
    R.AUTH_DELETE_ACL: ({"subject": "User:user"}, b"", None),
    R.AUTH_GET_ACL: ({"subject": "User:user"}, b"", None),
    R.AUTH_LIST_ACL: ({}, b"", None),
    R.UPDATE_BROKER_CONFIG: ({}, b"brokerPermission=6\n", 0),
    R.GET_BROKER_RUNTIME_INFO: ({}, b"", 0),
    R.GET_BROKER_HA_STATUS: ({}, b"", 0),
    R.GET_BROKER_EPOCH_CACHE: ({}, b"", 1),
    R.GET_ALL_DELAY_OFFSET: ({}, b"", 0),
    R.CLEAN_EXPIRED_CONSUMEQUEUE: ({}, b"", 0),
    R.DELETE_EXPIRED_COMMITLOG: ({}, b"", 0),
    R.CLEAN_UNUSED_TOPIC: ({}, b"", 0),
    R.VIEW_BROKER_STATS_DATA: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": "T-1"}, b"", None),
}


async def ask(broker: Broker, code: int) -> int | None:
    fields, body, _ = REQUESTS[code]
    texts = {key: str(value) for key, value in {**COMMON, **fields}.items()}
    request = RemotingCommand(code=code, ext_fields=texts, body=body)
    answer = broker.ports.server.handlers[code](request, Member(65_000))
    if asyncio.iscoroutine(answer):
        answer = await asyncio.create_task(answer)
    return None if answer is None else answer.code


@pytest.fixture
def enough(quick: bool) -> int:
    """The number of rounds below the limit that end a measurement."""
    return 1 if quick else ENOUGH


async def hold_s(
    callback_times: Any, work: Callable[[], Coroutine[Any, Any, T]], enough: int
) -> tuple[float, T]:
    """The longest callback of a round, on a machine as slow as the one that the limit was chosen
    for, and the result of the last round.

    It is that of the shortest rounds, of which `enough` must be below the limit: work that takes
    too long does so in every round, but a busy machine slows this thread for some tens of
    milliseconds at a time. How slow it is now is measured right behind a round that took too long.
    """
    longest: list[float] = []
    with callback_times.measured():
        while len(longest) < ROUNDS:
            callback_times.reset()
            result = await asyncio.create_task(work())
            await asyncio.sleep(0)
            took = callback_times.longest_s
            longest.append(took if took < LIMIT_S else took / slowness())
            if sum(each < LIMIT_S for each in longest) == enough:
                break
            if longest[-1] >= LIMIT_S:
                await asyncio.sleep(PAUSE_S)
    return sorted(longest)[enough - 1], result


def test_no_request_blocks_the_loop_of_a_large_broker_for_5_ms(
    big: BigBroker, callback_times: Any, enough: int
) -> None:
    wrong: dict[str, object] = {}
    codes = big.broker.ports.server.handlers.keys()
    assert codes == REQUESTS.keys(), "each request code needs a line in REQUESTS"
    for code in codes:
        name = RequestCode(code).name
        wanted = REQUESTS[code][2]

        async def answered(code: int = code, name: str = name, wanted: int | None = wanted) -> None:
            found = await ask(big.broker, code)
            if wanted is not None and found != wanted:
                wrong[f"{name} answered"] = found

        held_s, _ = big.run(hold_s(callback_times, answered, enough))
        if held_s >= LIMIT_S:
            wrong[name] = f"{held_s * 1000:.1f} ms in {callback_times.place}"
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@pytest.mark.parametrize("job", ["_keep_house", "_sample"])
def test_no_periodic_job_blocks_the_loop_of_a_large_broker_for_5_ms(
    big: BigBroker, callback_times: Any, enough: int, job: str
) -> None:
    work = getattr(big.broker._housekeeping, job)
    held_s, _ = big.run(hold_s(callback_times, work, enough))
    assert held_s < LIMIT_S, callback_times.place


def test_joins_and_leaves_of_a_thousand_members_block_the_loop_for_less_than_5_ms(
    big: BigBroker, callback_times: Any
) -> None:
    broker = big.broker
    consumers = broker.managers.members.consumers
    members = len(consumers.groups["G-0"].channels)
    joining = [Member(50_000 + number) for number in range(500)]
    data = ConsumerData(
        group_name="G-0",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[SubscriptionData(topic="T-50", sub_string="*")],
    )
    longest = []

    async def join_and_leave() -> None:
        for member in joining:
            callback_times.reset()
            consumers.register(data, ClientChannel(member, "new", "JAVA", 401), notify=True)
            await asyncio.sleep(0)
            longest.append(callback_times.longest_s)
        for member in joining:
            callback_times.reset()
            broker.managers.members.connection_closed(member)
            await asyncio.sleep(0)
            longest.append(callback_times.longest_s)
        while broker.managers.members._closed:
            await asyncio.sleep(0.01)

    with callback_times.measured():
        big.run(join_and_leave())
    assert len(consumers.groups["G-0"].channels) == members
    assert sorted(longest)[-len(longest) // 100] < limit_s(LIMIT_S), callback_times.place


@pytest.mark.parametrize("page", ["_metrics", "_varz", "_readyz"])
def test_no_scrape_blocks_the_loop_of_a_large_broker_for_5_ms(
    big: BigBroker, callback_times: Any, enough: int, page: str
) -> None:
    scrape = getattr(big.broker._monitors.metrics, page)
    held_s, answer = big.run(hold_s(callback_times, lambda: scrape(""), enough))
    assert sum(map(len, answer.body)) > 0
    assert held_s < LIMIT_S, callback_times.place
