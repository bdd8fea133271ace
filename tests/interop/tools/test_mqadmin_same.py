"""mqadmin's consumer, offset and message commands print the same with Congreve and the reference.

mqadmin_answers.json has the output with the reference, with addresses, times, ids and rates masked;
INTEROP_SERVER=java runs the scenario with the reference again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.console import EVENTUALLY_S, Console, eventually
from harness.drivers import Driver, Json, balanced, java_driver, message

ANSWERS = Path(__file__).parents[2] / "golden/mqadmin_answers.json"
TOPIC, GROUP, QUEUES = "same", "same-group", 4
BLOTS = (
    (r"127\.0\.0\.1:\d+", "PEER"),
    (r"\b[0-9A-F]{32,}\b", "ID"),
    (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,:]\d{3})?", "TIME"),
    (r"\b1[6-9]\d{11}\b", "MS"),
    (r"[0-9.]+@[0-9a-f-]{36}", "CLIENT"),
    (r"(TPS:|#Group.*) +[0-9.]+", r"\1"),
    (r"http://rocketmq\S*|See .* further details\.|For more information, .*", ""),
    (r"^\s+at .*$|^\s+\.\.\. \d+ more$", ""),
    (r" +", " "),
)
# Congreve's remarks say more, or its lists contain a topic that the reference creates later.
OWN_WORDS = (
    (r"T[Hh]e consumer group <(\S+)> (not exist|has no offset on .*)", r"no group \1"),
    (r"consumer:\[/?", "consumer:["),
    (r".*RMQ_SYS_TRANS_HALF_TOPIC.*", ""),
)

NAMED = ("-g", GROUP, "-t", TOPIC)
WITH_MEMBERS = [
    ("consumerConnection", "-g", GROUP),
    ("consumerProgress", "-g", GROUP),
    ("consumerProgress", "-g", GROUP, "-s", "true"),
    ("consumerProgress", "-g", "nobody"),
    ("consumerConnection", "-g", "nobody"),
    ("consumerStatus", "-g", GROUP),
    ("consumerStatus", "-g", "nobody"),
    ("getConsumerConfig", "-g", GROUP),
    ("getConsumerConfig", "-g", "nobody"),
    ("producerConnection", "-g", "CLIENT_INNER_PRODUCER", "-t", TOPIC),
    ("producerConnection", "-g", "nobody", "-t", TOPIC),
    ("topicStatus", "-t", TOPIC),
    ("topicStatus", "-t", "nothing"),
    ("topicList", "-c"),
    ("topicClusterList", "-t", TOPIC),
    ("brokerConsumeStats", "-b", "BROKER"),
    ("brokerConsumeStats", "-b", "BROKER", "-l", "1"),
    ("queryMsgById", "-i", "OFFSET_ID"),
    ("queryMsgById", "-i", "garbage"),
    ("queryMsgByKey", "-t", TOPIC, "-k", "all"),
    ("queryMsgByKey", "-t", TOPIC, "-k", "none"),
    ("queryMsgByKey", "-t", "nothing", "-k", "none"),
    ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "2", "-o", "3"),
    ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "2", "-o", "99"),
    ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "9", "-o", "0"),
    ("queryMsgByUniqueKey", "-t", TOPIC, "-i", "UNIQUE_ID"),
    ("queryMsgTraceById", "-i", "UNIQUE_ID"),
    ("queryCq", "-t", TOPIC, "-q", "2", "-i", "0", "-b", "BROKER"),
    ("queryCq", "-t", TOPIC, "-q", "2", "-i", "1", "-c", "2", "-g", GROUP, "-b", "BROKER"),
    ("queryCq", "-t", TOPIC, "-q", "2", "-i", "0", "-c", "1", "-g", "nobody", "-b", "BROKER"),
    ("queryCq", "-t", TOPIC, "-q", "2", "-i", "50", "-b", "BROKER"),
    ("queryCq", "-t", "nothing", "-q", "2", "-i", "0", "-b", "BROKER"),
    ("printMsg", "-t", TOPIC, "-d", "true"),
    ("printMsg", "-t", TOPIC, "-s", "A", "-d", "true"),
    ("printMsg", "-t", TOPIC, "-b", "2020-01-01#00:00:00:000", "-e", "2035-01-01#00:00:00:000"),
    ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "2", "-p", "true", "-f", "true"),
    ("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "2", "-o", "2", "-g", "cm"),
    ("allocateMQ", "-t", TOPIC, "-i", "1.1.1.1,2.2.2.2"),
    ("resetOffsetByTime", "-g", "nobody", "-t", TOPIC, "-s", "0"),
    ("resetOffsetByTime", "-g", GROUP, "-t", "nothing", "-s", "0"),
    ("cloneGroupOffset", "-s", GROUP, "-d", "clone", "-t", TOPIC, "-o", "false"),
    ("startMonitoring",),
]
# After each of them consumerProgress is compared, too.
WITHOUT_MEMBERS = [
    ("consumerStatus", "-g", GROUP),
    ("resetOffsetByTime", *NAMED, "-s", "0"),
    ("resetOffsetByTime", *NAMED, "-s", "now", "-f", "false"),
    ("resetOffsetByTime", *NAMED, "-s", "2020-01-01#00:00:00:000", "-f", "false"),
    ("skipAccumulatedMessage", *NAMED),
    ("skipAccumulatedMessage", *NAMED, "-f", "false"),
    ("skipAccumulatedMessage", "-g", "nobody", "-t", TOPIC),
    ("cloneGroupOffset", "-s", GROUP, "-d", "clone", "-t", TOPIC, "-o", "true"),
    ("cloneGroupOffset", "-s", "nobody", "-d", "clone", "-t", TOPIC, "-o", "true"),
]
FLAGS = (
    "-s",
    "false",
    "-m",
    "false",
    "-d",
    "false",
    "-q",
    "3",
    "-r",
    "5",
    "-w",
    "2",
    "-a",
    "false",
)
SETTINGS = [
    ("updateSubGroup", "-g", "made", *FLAGS, "-b", "BROKER"),
    ("getConsumerConfig", "-g", "made"),
    ("updateSubGroup", "-c", servers.CLUSTER, "-g", "made"),
    ("getConsumerConfig", "-g", "made"),
    ("deleteSubGroup", "-g", "made", "-b", "BROKER"),
    ("deleteSubGroup", "-c", servers.CLUSTER, "-g", GROUP, "-r", "true"),
    ("consumerProgress", "-g", GROUP),
    ("deleteExpiredCommitLog", "-b", "BROKER"),
    ("sendMessage", "-t", TOPIC, "-p", "hi", "-k", "kk", "-c", "cc", "-b", "broker-a", "-i", "1"),
]
# The commands that may run only once, because their output depends on their own changes.
CHANGING = {
    "cloneGroupOffset",
    "deleteSubGroup",
    "resetOffsetByTime",
    "sendMessage",
    "skipAccumulatedMessage",
    "updateSubGroup",
}


def printed(out: str) -> list[str]:
    """Its lines, in any order: tables of the reference have none."""
    for pattern, instead in (*BLOTS, *OWN_WORDS):
        out = re.sub(pattern, instead, out, flags=re.MULTILINE)
    return sorted(line.strip() for line in out.splitlines() if line.strip())


Read = Callable[[], list[str]]


def play(java: Driver, cluster: Cluster) -> Iterator[tuple[str, Read, bool]]:
    """Each command, a function that runs it, and whether it only reads."""
    console = Console(java, cluster)
    where: Json = {"namesrv": cluster.namesrv.address}
    cluster.create_topic(java, TOPIC, queues=QUEUES)
    group: Json = {"id": GROUP, "group": GROUP, "topic": TOPIC}
    java.call("consumerStart", instances=2, hasty=True, **group, **where)
    # While a queue changes its member, its offset may go back, and no member has it.
    balanced(java, TOPIC, GROUP, QUEUES)
    texts = [message(TOPIC, b"%d|" % i, keys=f"k{i} all", tags="AAABB"[i]) for i in range(5)]
    sent = java.call("send", messages=texts, queueId=2, **where)["results"]
    known = {
        "BROKER": cluster.broker.address,
        "OFFSET_ID": sent[0]["offsetMsgId"],
        "UNIQUE_ID": sent[1]["msgId"],
    }

    def run(command: tuple[str, ...]) -> list[str]:
        if command[0] == "startMonitoring":
            return monitored(java, cluster)
        return printed(console(command[0], *(known.get(word, word) for word in command[1:])))

    def step(command: tuple[str, ...], reads: bool) -> tuple[str, Read, bool]:
        return " ".join(command), lambda: run(command), reads

    java.call("consumerWait", id=GROUP, expected=5, timeoutMs=60_000, quietMs=100)
    progress = r"(?s)%RETRY%.* 3 .*Diff Total: 0\b"
    eventually(lambda: console("consumerProgress", "-g", GROUP), progress)
    console.members(GROUP, TOPIC, count=2)
    for command in WITH_MEMBERS:
        yield step(command, command[0] not in CHANGING)
    java.call("consumerStop", id=GROUP)
    eventually(lambda: console("consumerConnection", "-g", GROUP), r"CODE: 206\b")
    for command in WITHOUT_MEMBERS:
        yield step(command, command[0] not in CHANGING)
        yield f"then, {command}", lambda: run(("consumerProgress", "-g", GROUP)), True
    for command in SETTINGS:
        yield step(command, command[0] not in CHANGING)


def monitored(java: Driver, cluster: Cluster) -> list[str]:
    """What the listener of startMonitoring gets in one round about the group and its members; the
    command itself prints nothing."""
    found = []
    for one in java.call("monitor", namesrv=cluster.namesrv.address, timeoutMs=0)["calls"]:
        about = one.get("of", {})
        if one["call"] == "reportConsumerRunningInfo":
            groups = {info["properties"]["consumerGroup"] for info in about.values()}
            about = {"consumerGroup": ",".join(groups), "members": len(about)}
        if about.get("consumerGroup", GROUP) == GROUP:
            found.append(f"{one['call']} {json.dumps(about, sort_keys=True)}")
    return sorted(found)


def repeated(read: Read, expected: list[str]) -> list[str]:
    """The output of a command, repeated because requests may time out on a busy machine."""
    deadline = time.monotonic() + EVENTUALLY_S
    while (lines := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return lines


@pytest.fixture
def alone(kind: str, tmp_path: Path) -> Iterator[tuple[Driver, Cluster]]:
    """A cluster and a JVM for these tests alone."""
    java = java_driver(tmp_path / "driver", "JSON")
    namesrv = servers.namesrv(kind, tmp_path / "namesrv")
    namesrv.start()
    broker = servers.broker(kind, tmp_path, namesrv.address)
    try:
        broker.start()
        yield java, Cluster(namesrv, broker)
    finally:
        broker.kill()
        namesrv.kill()
        java.close()


def test_mqadmin_prints_the_same_as_with_the_reference(alone: tuple[Driver, Cluster]) -> None:
    theirs = json.loads(ANSWERS.read_text())
    for (name, read, only_reads), expected in zip(play(*alone), theirs, strict=True):
        command, wanted = expected
        lines = repeated(read, wanted) if only_reads else read()
        assert [name, lines] == [command, wanted], name
