"""mqadmin's topic, broker, name server, export and trace commands print the same as with the
reference.

mqadmin_cluster_answers.json has the output with the reference, masked as in test_mqadmin_same.py;
INTEROP_SERVER=java runs the scenario with the reference again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness.cluster import Cluster
from harness.console import EVENTUALLY_S, Console, eventually
from harness.drivers import Driver, Json, message
from harness.servers import CLUSTER

from congreve.client import (
    ConsumeFrom,
    Message,
    ReceivedMessage,
    SyncProducer,
    SyncPushConsumer,
)
from congreve.client.observability.trace import ConsumeTraceHook, TraceHook
from congreve.records.message.topics import TRACE_TOPIC

from .test_mqadmin_same import Read, alone, printed

ANSWERS = Path(__file__).parents[2] / "golden/mqadmin_cluster_answers.json"
TOPIC, GROUP = "cluster-same", "cluster-group"
EXPORTED = ("metadata.json", "configs.json", "metrics.json")

__all__ = ["alone"]

# What is measured: loads, rates, ratios, times, sizes. The count of wipeWritePerm has a topic that
# the reference creates later.
MEASURED = (
    (r"(V4_9_4) .*", r"\1"),
    (r"\b(rt|RT: ?)=?[\d.]+(ms)?", r"\1"),
    (r"^(broker-a \d true) \d+$", r"\1"),
    (r"(OK), \d+$", r"\1"),
    (r'("\w*(Tps|DiskRatio)": ).*', r"\1"),
    (r'^"cpuNum".*|^"runtimeEnv": .*|^\}$', ""),
    (r"^((PEER )?commitLogDiskRatio_).*", r"\1"),
    # Samples of the last minutes and of the day.
    (r"^(\S+) \d+ [\d.]+ \d+ (NO_CONSUMER)$", r"\1 \2"),
    # The time of a send and of a listener, the sender's address.
    (r"^(InteropCluster broker-a) [\d.]+ (\d \d)$", r"\1 \2"),
    (r"^(TIME\|room\|InteropCluster\|broker-a)\|\d+$", r"\1"),
    (r"^((?:Pub|Sub) trace-\S+) \S+ (TIME) \d+ms", r"\1 \2"),
)
# Lines of brokerStatus whose values are measured, or belong to pools of threads that only the
# reference has: only their names are compared.
STATUS = re.compile(
    r"((?:PEER )?(?:\w*(?:DiskRatio_?|Tps|Latency99\d?|QueueCapacity|DirCapacity|EntireTimeMax"
    r"|DistributeTime|TimeStamp|Morning)|remainHowManyDataToFlush|runtime|putMessageAverageSize))"
    r" ?:.*"
)
OWN_STATUS = re.compile(
    r"(PEER )?(connections|maxConnections|refusedConnections|cut\w+|ioBackend|storeWritable"
    r"|storeShortages|stateFilesWritable|openTransactions|unfinishedFrameBytes|unreadAnswerBytes"
    r"|haRepairs|logDamaged|logDamagedFound|logRepaired"
    r"|brokerRole|haSlaves|haInSync|getTransferredTps) :"
)
# Settings whose values differ: ports, folders, a size and a number of our own.
OTHER_VALUES = re.compile(
    r"(haListenPort|haTransferBatchSize|listenPort|maxLmqConsumeQueueNum|\w+Home|\w+Path\w*) = "
)

COMMANDS = [
    ("updateTopic", "-t", "made", "-b", "BROKER", "-r", "3", "-w", "2", "-p", "4"),
    ("topicRoute", "-t", "made"),
    ("topicRoute", "-t", "nothing"),
    ("topicRoute", "-t", "made", "-l"),
    ("updateTopic", "-t", "made", "-c", CLUSTER, "-o", "true"),
    ("topicRoute", "-t", "made"),
    ("updateTopic", "-t", "made", "-b", "BROKER", "-u", "true", "-s", "true"),
    ("updateTopicPerm", "-t", "made", "-b", "BROKER", "-p", "2"),
    ("updateTopicPerm", "-t", "made", "-b", "BROKER", "-p", "2"),
    ("updateTopicPerm", "-t", "made", "-c", CLUSTER, "-p", "6"),
    ("updateTopicPerm", "-t", "nothing", "-b", "BROKER", "-p", "6"),
    ("topicList",),
    ("updateOrderConf", "-t", "made", "-v", "broker-a:4", "-m", "put"),
    ("updateOrderConf", "-t", "made", "-m", "get"),
    ("updateOrderConf", "-t", "made", "-m", "delete"),
    ("updateOrderConf", "-t", "made", "-m", "get"),
    ("deleteTopic", "-t", "made", "-c", CLUSTER),
    ("deleteTopic", "-t", "nothing", "-c", CLUSTER),
    ("topicRoute", "-t", "made"),
    ("clusterList",),
    ("clusterList", "-m"),
    ("brokerStatus", "-b", "BROKER"),
    ("brokerStatus", "-c", CLUSTER),
    ("getBrokerConfig", "-b", "BROKER"),
    ("updateBrokerConfig", "-b", "BROKER", "-k", "defaultTopicQueueNums", "-v", "6"),
    ("updateBrokerConfig", "-c", CLUSTER, "-k", "defaultTopicQueueNums", "-v", "8"),
    ("wipeWritePerm", "-b", "broker-a"),
    ("topicRoute", "-t", TOPIC),
    ("addWritePerm", "-b", "broker-a"),
    ("topicRoute", "-t", TOPIC),
    ("wipeWritePerm", "-b", "nobody"),
    ("addWritePerm", "-b", "nobody"),
    ("updateKvConfig", "-s", "space", "-k", "key", "-v", "value"),
    ("deleteKvConfig", "-s", "space", "-k", "key"),
    ("deleteKvConfig", "-s", "space", "-k", "key"),
    ("getNamesrvConfig",),
    ("producer", "-b", "BROKER"),
    ("statsAll",),
    ("statsAll", "-a"),
    ("statsAll", "-t", TOPIC),
    ("checkMsgSendRT", "-t", TOPIC, "-a", "4", "-s", "16"),
    ("sendMsgStatus", "-b", "broker-a", "-c", "2", "-s", "16"),
    ("cleanUnusedTopic", "-b", "BROKER"),
    ("cleanUnusedTopic", "-c", CLUSTER),
    ("cleanExpiredCQ", "-b", "BROKER"),
    ("cleanExpiredCQ", "-c", CLUSTER),
    ("deleteExpiredCommitLog", "-c", CLUSTER),
    ("exportMetadata", "-c", CLUSTER, "-f", "FOLDER"),
    ("exportMetadata", "-b", "BROKER", "-t", "-f", "FOLDER"),
    ("exportMetadata", "-b", "BROKER", "-g", "-f", "FOLDER"),
    ("exportConfigs", "-c", CLUSTER, "-f", "FOLDER"),
    ("exportMetrics", "-c", CLUSTER, "-f", "FOLDER"),
    ("nonsense",),
    ("help", "topicList"),
    ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"),
    ("getNamesrvConfig",),
    ("clusterRT", "-a", "3", "-s", "16", "-i", "1000"),
    ("clusterRT", "-c", "nothing", "-i", "1000"),
    ("clusterRT", "-a", "2", "-c", CLUSTER, "-i", "1000", "-p", "true", "-m", "room"),
    ("queryMsgTraceById", "-i", "JAVA_ID"),
    ("queryMsgTraceById", "-i", "PYTHON_ID"),
    ("queryMsgTraceById", "-i", "PYTHON_ID", "-t", "nothing"),
]
# What a command prints before it is interrupted, because it has no end of its own.
LINES = {"clusterRT": 2}


def play(java: Driver, cluster: Cluster, folder: Path) -> Iterator[tuple[str, Read, bool]]:
    """Each command, a function that runs it, and whether it only reads."""
    console = Console(java, cluster)
    where: Json = {"namesrv": cluster.namesrv.address}
    cluster.create_topic(java, TOPIC, queues=4)
    texts = [message(TOPIC, b"%d|" % i, keys=f"k{i}") for i in range(3)]
    java.call("send", messages=texts, queueId=1, **where)
    known = {"BROKER": cluster.broker.address, "FOLDER": str(folder)}

    def run(command: tuple[str, ...]) -> list[str]:
        lines = LINES.get(command[0], 0) - ("-p" in command)
        words = (known.get(word, word) for word in command[1:])
        out = console(command[0], *words, lines=lines)
        for name in EXPORTED:
            file = folder / name
            if file.exists():
                out += "\n" + json.dumps(json.loads(file.read_text()), indent=1)
                file.unlink()
        return printed(out.replace(str(folder), "FOLDER"))

    for command in COMMANDS:
        if "JAVA_ID" in command:
            known |= traced(java, cluster)
        reads = re.match(
            r"topicRoute|topicList|clusterList|statsAll|brokerStatus|get|query", command[0]
        )
        read = partial(run, command)
        yield " ".join(command), read, reads is not None


def traced(java: Driver, cluster: Cluster) -> dict[str, str]:
    """The ids of messages that both clients have consumed and each has sent, with traces."""
    console = Console(java, cluster)
    console("updateTopic", "-t", TRACE_TOPIC, "-r", "1", "-w", "1", broker=True)
    namesrv, topic = cluster.namesrv.address, "traced"
    cluster.create_topic(java, topic, queues=1)
    member: Json = {"id": "t", "group": "trace-java-consumer", "topic": topic, "namesrv": namesrv}
    java.call("consumerStart", instances=1, trace=True, **member)
    hooks = [ConsumeTraceHook(namesrv, "trace-python-consumer")]
    came: list[ReceivedMessage] = []
    with (
        SyncPushConsumer(
            namesrv,
            group="trace-python-consumer",
            topics={topic: "*"},
            listener=came.append,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            hooks=hooks,
        ),
        SyncProducer(
            namesrv,
            group="trace-python-producer",
            hooks=[TraceHook(namesrv, "trace-python-producer")],
        ) as producer,
    ):
        sent = producer.send(Message(topic=topic, body=b"1|", keys="k1"))
        (one,) = java.call(
            "send",
            messages=[message(topic, b"2|", keys="k2")],
            group="trace-java-producer",
            trace=True,
            namesrv=namesrv,
        )["results"]
        java.call("consumerWait", id="t", expected=2, timeoutMs=60_000, quietMs=100)
        deadline = time.monotonic() + EVENTUALLY_S
        while len(came) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for sender in (one["msgId"], sent.message_id):  # the end of a consumer drops its last records
        eventually(
            partial(console, "queryMsgTraceById", "-i", sender),
            r"(?s)Pub .*Sub +trace-.*Sub +trace-",
        )
    java.call("consumerStop", id="t")
    return {"JAVA_ID": one["msgId"], "PYTHON_ID": sent.message_id}


def compared(command: str, lines: list[str], other: list[str]) -> list[str]:
    """The lines of an output that must be the same in the `other` one.

    Of settings these are the ones that both have.
    """
    if re.match(r"get\w+Config ", command + " "):
        common = {line.partition(" = ")[0] for line in other if not OTHER_VALUES.match(line)}
        return [line for line in lines if line.partition(" = ")[0] in common]
    if command == "statsAll -a":  # only topics with messages in the last sample
        lines = lines[:1]
    for pattern, instead in MEASURED:
        lines = [re.sub(pattern, instead, line) for line in lines]
    if command.startswith("brokerStatus"):
        lines = [STATUS.sub(r"\1", line) for line in lines if not OWN_STATUS.match(line)]
    return sorted(line for line in lines if line)


def test_mqadmin_prints_the_same_for_a_cluster_as_with_the_reference(
    alone: tuple[Driver, Cluster], tmp_path: Path
) -> None:
    theirs = json.loads(ANSWERS.read_text())
    wrong = []
    for (name, read, reads), (command, answer) in zip(
        play(*alone, tmp_path / "exports"), theirs, strict=True
    ):
        assert name == command
        deadline = time.monotonic() + EVENTUALLY_S
        while True:
            lines = read()
            ours, wanted = compared(name, lines, answer), compared(name, answer, lines)
            if ours == wanted or not reads or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if ours != wanted or (answer and not ours):
            missing, more = set(wanted) - set(ours), set(ours) - set(wanted)
            wrong.append(f"{name}: missing {sorted(missing)}, more {sorted(more)}")
    assert not wrong, "\n".join(wrong)
