"""The blocks of Java in README.md and docs/, run in one program with RocketMQ's own client."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path

import pytest
from harness import build

import congreve

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```java\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: What the pages take for granted, as fields; a block that declares one has its own.
PROGRAM = """
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.*;

public class Blocks {
    static byte[] body = "body".getBytes(StandardCharsets.UTF_8);
    static Message message;
    static List<Message> messages = List.of(
        new Message("orders", body), new Message("orders", body));
    static DefaultMQProducer producer = new DefaultMQProducer("producers");
    static DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("consumers");
    static MessageQueueSelector selector = (queues, asked, argument) -> queues.get(0);
    static Object argument = null;
    static TransactionListener listener = new TransactionListener() {
        public LocalTransactionState executeLocalTransaction(Message sent, Object given) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        public LocalTransactionState checkLocalTransaction(MessageExt asked) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    };

    public static void main(String[] arguments) {
        try {
            run();
            System.out.println("all blocks ran");
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void run() throws Exception {
        producer.start();
        // The client sends its first heartbeat a second later; brokers push replies after it.
        producer.send(new Message("orders", body));
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        DefaultMQPushConsumer replying = new DefaultMQPushConsumer("replying");
        replying.subscribe("orders", "*");
        replying.registerMessageListener((MessageListenerConcurrently) (asked, context) -> {
            try {
                if (asked.get(0).getProperty("CORRELATION_ID") != null) {
                    producer.send(MessageUtil.createReplyMessage(asked.get(0), body));
                }
            } catch (Exception error) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        replying.start();
%(calls)s
    }
%(methods)s
}
"""


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.interop
def test_every_block_of_java_runs(tmp_path: Path) -> None:
    if missing := build.missing_tools("java", "mvn"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    shown = [text for page in pages() for text in BLOCK.findall(page.read_text())]
    assert len(shown) >= 8
    with congreve.serve(tmp_path / "data", flushDiskType="ASYNC_FLUSH") as node:
        with node.producer("first") as producer:  # members find the queues of the topic at once
            producer.send(congreve.Message(topic="orders", body=b"x"))
        methods = "\n".join(
            f"    static void block{number}() throws Exception {{\n"
            + textwrap.indent(text.replace("127.0.0.1:9876", node.address), " " * 8)
            + "    }"
            for number, text in enumerate(shown)
        )
        calls = "\n".join(
            f'        message = new Message("orders", body);\n        block{number}();'
            for number in range(len(shown))
        )
        (tmp_path / "Blocks.java").write_text(PROGRAM % {"calls": calls, "methods": methods})
        done = subprocess.run(
            [
                *("java", "-Drocketmq.client.logUseSlf4j=true"),
                f"-Drocketmq.namesrv.addr={node.address}",
                *("-cp", build.classpath(), "Blocks.java"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert "all blocks ran" in done.stdout, done.stdout + done.stderr
