package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Comparator;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pulls and offsets through DefaultMQPullConsumer. */
@SuppressWarnings("deprecation")
final class Pulls {
    private Pulls() {
    }

    private interface Work {
        JSONObject run(DefaultMQPullConsumer consumer) throws Exception;
    }

    private static JSONObject with(JSONObject request, Work work) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-puller");
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumerPullTimeoutMillis(15_000);
        consumer.start();
        try {
            return work.run(consumer);
        } finally {
            consumer.shutdown();
        }
    }

    private static List<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic)
        throws Exception {
        List<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic).stream()
            .sorted(Comparator.comparing(MessageQueue::getQueueId)).toList();
        // A broker's version, which SQL filters need, comes with the answer to a heartbeat, which
        // goes to brokers that were talked to.
        consumer.minOffset(queues.get(0));
        consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
            .sendHeartbeatToAllBrokerWithLock();
        return queues;
    }

    private static MessageQueue queue(DefaultMQPullConsumer consumer, JSONObject request)
        throws Exception {
        int id = request.getIntValue("queueId");
        return queues(consumer, request.getString("topic")).stream()
            .filter(queue -> queue.getQueueId() == id).findFirst().orElseThrow();
    }

    private static MessageSelector selector(JSONObject request) {
        String sql = request.getString("sql");
        String tags = request.getString("expression");
        return sql != null ? MessageSelector.bySql(sql)
            : MessageSelector.byTag(tags == null ? "*" : tags);
    }

    /** One pull. */
    static JSONObject pull(JSONObject request) throws Exception {
        return with(request, consumer -> {
            PullResult result = consumer.pull(queue(consumer, request), selector(request),
                request.getLongValue("offset"), request.getIntValue("max"));
            return new JSONObject()
                .fluentPut("status", result.getPullStatus().name())
                .fluentPut("next", result.getNextBeginOffset())
                .fluentPut("min", result.getMinOffset())
                .fluentPut("max", result.getMaxOffset())
                .fluentPut("messages", Messages.toJson(
                    result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList()));
        });
    }

    /** Every message of every queue of the topics, from the smallest offset to the largest. */
    static JSONObject drain(JSONObject request) throws Exception {
        return with(request, consumer -> {
            JSONArray messages = new JSONArray();
            for (Object topic : request.getJSONArray("topics")) {
                for (MessageQueue queue : queues(consumer, (String) topic)) {
                    drain(consumer, queue, selector(request), messages);
                }
            }
            return new JSONObject().fluentPut("messages", messages);
        });
    }

    private static void drain(DefaultMQPullConsumer consumer, MessageQueue queue,
        MessageSelector selector, JSONArray into) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, selector, offset, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                into.addAll(Messages.toJson(result.getMsgFoundList()));
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("no way on from " + offset + " of " + queue
                    + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
    }

    /** Min, max, earliest time, and the offset at a time where one is given, of each queue. */
    static JSONObject offsets(JSONObject request) throws Exception {
        Long time = request.getLong("time");
        return with(request, consumer -> {
            JSONArray found = new JSONArray();
            for (MessageQueue queue : queues(consumer, request.getString("topic"))) {
                JSONObject one = new JSONObject()
                    .fluentPut("queueId", queue.getQueueId())
                    .fluentPut("min", consumer.minOffset(queue))
                    .fluentPut("max", consumer.maxOffset(queue))
                    .fluentPut("earliest", consumer.earliestMsgStoreTime(queue));
                if (time != null) {
                    one.put("at", consumer.searchOffset(queue, time));
                }
                found.add(one);
            }
            return new JSONObject().fluentPut("queues", found);
        });
    }

    /** A pull that waits at the end of a queue, then a send: how long until the pull answers. */
    static JSONObject longPoll(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.start();
        try {
            return with(request, consumer -> longPoll(request, producer, consumer));
        } finally {
            producer.shutdown();
        }
    }

    private static JSONObject longPoll(JSONObject request, DefaultMQProducer producer,
        DefaultMQPullConsumer consumer) throws Exception {
        MessageQueue queue = queue(consumer, request);
        JSONArray latencies = new JSONArray();
        int early = 0;
        for (int i = 0; i < request.getIntValue("rounds"); i++) {
            long offset = consumer.maxOffset(queue);
            CompletableFuture<Long> answered = CompletableFuture.supplyAsync(() -> {
                try {
                    PullResult result = consumer.pullBlockIfNotFound(queue, "*", offset, 32);
                    if (result.getPullStatus() != PullStatus.FOUND) {
                        throw new IllegalStateException(result.toString());
                    }
                    return System.nanoTime();
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            Thread.sleep(request.getLongValue("pauseMs"));
            early += answered.isDone() ? 1 : 0;
            long sent = System.nanoTime();
            producer.send(new Message(queue.getTopic(), Messages.numberedBody(i, 16)), queue);
            latencies.add((answered.get(20, TimeUnit.SECONDS) - sent) / 1e6);
        }
        return new JSONObject().fluentPut("latenciesMs", latencies).fluentPut("early", early);
    }
}
