package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** How long a message takes to a push listener: from send(), or from the consumer's start. */
final class Latencies {
    private Latencies() {
    }

    /** Sends count messages, one each pauseMs, after skip that are not measured. */
    static JSONObject endToEnd(JSONObject request) throws Exception {
        int skip = request.getIntValue("skip");
        int count = skip + request.getIntValue("count");
        AtomicLongArray taken = new AtomicLongArray(count);
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        // Pulls may be refused until the next heartbeat: see Requests.start().
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                if (taken.getAndSet(body.getInt(), now - body.getLong()) == 0) {
                    left.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = new DefaultMQProducer("latency-producer");
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        consumer.start();
        producer.start();
        try {
            for (int i = 0; i < count; i++) {
                Thread.sleep(request.getLongValue("pauseMs"));
                ByteBuffer body = ByteBuffer.allocate(128).putInt(i).putLong(System.nanoTime());
                producer.send(new Message(request.getString("topic"), body.array()));
            }
            if (!left.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " messages did not arrive");
            }
        } finally {
            producer.shutdown();
            consumer.shutdown();
        }
        JSONArray latencies = new JSONArray();
        for (int i = skip; i < count; i++) {
            latencies.add(taken.get(i) / 1e6);
        }
        return new JSONObject().fluentPut("latenciesMs", latencies);
    }

    /** A consumer of a topic with messages on so many brokers: the time from start() to each. */
    static JSONObject firstMessages(JSONObject request) throws Exception {
        CountDownLatch left = new CountDownLatch(request.getIntValue("brokers"));
        Set<String> seen = ConcurrentHashMap.newKeySet();
        JSONArray after = new JSONArray();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        long start = System.nanoTime();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                if (seen.add(message.getBrokerName())) {
                    synchronized (after) {
                        after.add((now - start) / 1e6);
                    }
                    left.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
            if (!left.await(120, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no message of " + left.getCount() + " brokers");
            }
        } finally {
            consumer.shutdown();
        }
        return new JSONObject().fluentPut("afterMs", after);
    }
}
