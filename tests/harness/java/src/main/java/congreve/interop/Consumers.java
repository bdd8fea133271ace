package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** Groups of DefaultMQPushConsumer that live from consumerStart to consumerStop, by their id. */
final class Consumers {
    private final Map<String, Group> groups = new ConcurrentHashMap<>();

    private static final class Group {
        final List<DefaultMQPushConsumer> members = new ArrayList<>();
        final List<AtomicInteger> taken = new ArrayList<>();
        final Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();
        final Map<String, Integer> lastNumber = new ConcurrentHashMap<>();
        final AtomicInteger total = new AtomicInteger();
        final AtomicInteger outOfOrder = new AtomicInteger();
        final AtomicInteger failuresLeft = new AtomicInteger();
        final AtomicInteger redelivered = new AtomicInteger();
        final AtomicLong lastAt = new AtomicLong(System.nanoTime());
        final Queue<JSONArray> places = new ConcurrentLinkedQueue<>();
        boolean notesPlaces;

        /** True when the listener should report failure for these messages. */
        boolean take(int member, List<MessageExt> messages) {
            if (failuresLeft.get() > 0 && failuresLeft.getAndDecrement() > 0) {
                return true;
            }
            for (MessageExt message : messages) {
                int number = Messages.numberOf(message);
                String queue = message.getTopic() + '@' + message.getQueueId();
                Integer before = lastNumber.put(queue, number);
                if (before != null && before >= number) {
                    outOfOrder.incrementAndGet();
                }
                if (message.getReconsumeTimes() > 0) {
                    redelivered.incrementAndGet();
                }
                seen.computeIfAbsent(Integer.toString(number), k -> new AtomicInteger())
                    .incrementAndGet();
                if (notesPlaces) {
                    places.add(new JSONArray().fluentAdd(message.getQueueId())
                        .fluentAdd(message.getQueueOffset()).fluentAdd(number));
                }
                taken.get(member).incrementAndGet();
                total.incrementAndGet();
            }
            lastAt.set(System.nanoTime());
            return false;
        }
    }

    JSONObject start(JSONObject request) throws Exception {
        Group group = new Group();
        group.failuresLeft.set(request.getIntValue("failures"));
        group.notesPlaces = request.getBooleanValue("places");
        groups.put(request.getString("id"), group);
        for (int i = 0; i < request.getIntValue("instances"); i++) {
            group.taken.add(new AtomicInteger());
            DefaultMQPushConsumer consumer = consumer(request);
            register(consumer, group, i, request.getBooleanValue("orderly"));
            try {
                consumer.start();
            } catch (MQClientException refused) {
                consumer.shutdown();
                throw refused;
            }
            group.members.add(consumer);
        }
        return new JSONObject();
    }

    private static DefaultMQPushConsumer consumer(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            request.getString("group"), Access.hook(), new AllocateMessageQueueAveragely(),
            request.getBooleanValue("trace"), null);
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        // A message that its listener has taken is in the offsets that a stopped member leaves.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        String from = request.getString("from");
        consumer.setConsumeFromWhere(from == null
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.valueOf(from));
        if (request.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        if (request.getBooleanValue("hash")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueConsistentHash());
        }
        if (request.getBooleanValue("hasty")) {
            consumer.setPollNameServerInterval(1_000);
            consumer.setHeartbeatBrokerInterval(1_000);
            consumer.setPersistConsumerOffsetInterval(500);
        }
        String expression = request.getString("expression");
        String sql = request.getString("sql");
        if (sql == null) {
            consumer.subscribe(request.getString("topic"), expression == null ? "*" : expression);
        } else {
            consumer.subscribe(request.getString("topic"), MessageSelector.bySql(sql));
        }
        return consumer;
    }

    private static void register(
        DefaultMQPushConsumer consumer, Group group, int member, boolean orderly) {
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                group.take(member, messages)
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                group.take(member, messages)
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        }
    }

    /** The queue ids of the topic that each instance holds now. */
    JSONObject assignment(JSONObject request) {
        JSONArray instances = new JSONArray();
        for (DefaultMQPushConsumer member : groups.get(request.getString("id")).members) {
            JSONArray queues = new JSONArray();
            for (MessageQueue queue : member.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().keySet()) {
                if (queue.getTopic().equals(request.getString("topic"))) {
                    queues.add(queue.getQueueId());
                }
            }
            instances.add(queues);
        }
        return new JSONObject().fluentPut("instances", instances);
    }

    /** Waits until so many different messages came and none for quietMs, at most timeoutMs. */
    JSONObject await(JSONObject request) throws Exception {
        Group group = groups.get(request.getString("id"));
        int expected = request.getIntValue("expected");
        long quiet = request.getLongValue("quietMs") * 1_000_000L;
        long end = System.nanoTime() + request.getLongValue("timeoutMs") * 1_000_000L;
        while (System.nanoTime() < end && (group.seen.size() < expected
            || System.nanoTime() - group.lastAt.get() < quiet)) {
            Thread.sleep(20);
        }
        return report(group);
    }

    /**
     * Where the messages since the last call were, each as [queueId, offset, number], if
     * consumerStart had `places`.
     */
    JSONObject places(JSONObject request) {
        JSONArray found = new JSONArray();
        Queue<JSONArray> places = groups.get(request.getString("id")).places;
        for (JSONArray place = places.poll(); place != null; place = places.poll()) {
            found.add(place);
        }
        return new JSONObject().fluentPut("places", found);
    }

    JSONObject stop(JSONObject request) {
        Group group = groups.remove(request.getString("id"));
        group.members.forEach(DefaultMQPushConsumer::shutdown);
        return report(group).fluentPut("seen", new JSONArray(new ArrayList<>(group.seen.keySet())));
    }

    private static JSONObject report(Group group) {
        JSONArray doubled = new JSONArray();
        group.seen.forEach((key, times) -> {
            if (times.get() > 1 && doubled.size() < 20) {
                doubled.add(key);
            }
        });
        return new JSONObject()
            .fluentPut("distinct", group.seen.size())
            .fluentPut("total", group.total.get())
            .fluentPut("doubled", doubled)
            .fluentPut("outOfOrder", group.outOfOrder.get())
            .fluentPut("redelivered", group.redelivered.get())
            .fluentPut("perInstance", new JSONArray(new ArrayList<>(group.taken)));
    }
}
