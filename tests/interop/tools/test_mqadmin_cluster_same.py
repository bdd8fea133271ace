"""mqadmin's topic, broker, name server and export commands print the same as with the reference.

mqadmin_cluster_answers.json has the output with the reference, masked as in test_mqadmin_same.py;
INTEROP_SERVER=java runs the scenario with the reference again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

from harness.cluster import Cluster
from harness.console import EVENTUALLY_S, Console
from harness.drivers import Driver, Json, message
from harness.servers import CLUSTER

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
    r"|storeShortages|stateFilesWritable|unfinishedFrameBytes|unreadAnswerBytes"
    r"|brokerRole|haSlaves) :"
)
# Settings whose values differ: ports, folders, and a size of our own.
OTHER_VALUES = re.compile(r"(haListenPort|haTransferBatchSize|listenPort|\w+Home|\w+Path\w*) = ")

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
]


def play(java: Driver, cluster: Cluster, folder: Path) -> Iterator[tuple[str, Read, bool]]:
    """Each command, a function that runs it, and whether it only reads."""
    console = Console(java, cluster)
    where: Json = {"namesrv": cluster.namesrv.address}
    cluster.create_topic(java, TOPIC, queues=4)
    texts = [message(TOPIC, b"%d|" % i, keys=f"k{i}") for i in range(3)]
    java.call("send", messages=texts, queueId=1, **where)
    known = {"BROKER": cluster.broker.address, "FOLDER": str(folder)}

    def run(command: tuple[str, ...]) -> list[str]:
        out = console(command[0], *(known.get(word, word) for word in command[1:]))
        for name in EXPORTED:
            file = folder / name
            if file.exists():
                out += "\n" + json.dumps(json.loads(file.read_text()), indent=1)
                file.unlink()
        return printed(out.replace(str(folder), "FOLDER"))

    for command in COMMANDS:
        reads = (
            re.match(r"topicRoute|topicList|clusterList|statsAll|brokerStatus|get", command[0])
            is not None
        )
        yield " ".join(command), (lambda command=command: run(command)), reads  # type: ignore[misc]


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
