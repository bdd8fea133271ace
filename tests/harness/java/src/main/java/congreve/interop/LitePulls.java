package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultLitePullConsumers that live from litePullStart to litePullStop, by their id. */
final class LitePulls {
    private final Map<String, DefaultLitePullConsumer> consumers = new ConcurrentHashMap<>();

    /** A member of a group; with assign it takes all queues from their beginning. */
    JSONObject start(JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(
            request.getString("group"), Access.hook());
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setAutoCommit(false);
        String topic = request.getString("topic");
        if (request.containsKey("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql(request.getString("sql")));
        } else if (!request.getBooleanValue("assign")) {
            consumer.subscribe(topic, "*");
        }
        consumer.start();
        if (request.getBooleanValue("assign")) {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seekToBegin(queue);
            }
        }
        consumers.put(request.getString("id"), consumer);
        return new JSONObject();
    }

    /** Polls until it has seen so many different messages, at most timeoutMs; then commits. */
    JSONObject poll(JSONObject request) {
        DefaultLitePullConsumer consumer = consumers.get(request.getString("id"));
        long end = System.nanoTime() + request.getLongValue("timeoutMs") * 1_000_000L;
        Set<Integer> seen = new TreeSet<>();
        while (seen.size() < request.getIntValue("expected") && System.nanoTime() < end) {
            for (MessageExt message : consumer.poll(100)) {
                seen.add(Messages.numberOf(message));
            }
        }
        consumer.commitSync();
        return new JSONObject().fluentPut("seen", new JSONArray(seen.stream()
            .map(Object.class::cast).toList()));
    }

    JSONObject stop(JSONObject request) {
        consumers.remove(request.getString("id")).shutdown();
        return new JSONObject();
    }
}
