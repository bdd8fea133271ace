package congreve.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** How fast DefaultMQProducer sends, and DefaultMQPushConsumer reads. */
final class Speed {
    private Speed() {
    }

    /**
     * Sends by "threads" that each wait for every answer, for "warmup" and then "seconds":
     * messages, and quantiles of a send in us.
     */
    static JSONObject produce(JSONObject request) throws Exception {
        int threads = request.getIntValue("threads");
        String topic = request.getString("topic");
        byte[] body = new byte[request.getIntValue("size")];
        DefaultMQProducer producer = new DefaultMQProducer("speed");
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            long begin = System.nanoTime() + (long) (request.getDoubleValue("warmup") * 1e9);
            long end = begin + (long) (request.getDoubleValue("seconds") * 1e9);
            List<Future<long[]>> parts = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                parts.add(pool.submit(() -> send(producer, topic, body, begin, end)));
            }
            List<long[]> found = new ArrayList<>();
            for (Future<long[]> part : parts) {
                found.add(part.get());
            }
            long[] all = found.stream().flatMapToLong(Arrays::stream).sorted().toArray();
            return new JSONObject().fluentPut("messages", all.length)
                .fluentPut("p50", all[all.length / 2] / 1e3)
                .fluentPut("p99", all[(int) (all.length * 0.99)] / 1e3);
        } finally {
            pool.shutdown();
            producer.shutdown();
        }
    }

    private static long[] send(DefaultMQProducer producer, String topic, byte[] body, long begin,
        long end) throws Exception {
        long[] took = new long[1 << 16];
        int count = 0;
        for (long now = System.nanoTime(); now < end; ) {
            producer.send(new Message(topic, body));
            long after = System.nanoTime();
            if (now >= begin) {
                if (count == took.length) {
                    took = Arrays.copyOf(took, 2 * count);
                }
                took[count++] = after - now;
            }
            now = after;
        }
        return Arrays.copyOf(took, count);
    }

    /**
     * Consumes the "count" messages of a topic from the first offset on, queue by queue in order:
     * the seconds from the first message to the last, and how many did not follow the one before.
     */
    static JSONObject consume(JSONObject request) throws Exception {
        Map<Integer, Long> next = new ConcurrentHashMap<>();
        AtomicInteger wrong = new AtomicInteger();
        AtomicLong first = new AtomicLong();
        CountDownLatch left = new CountDownLatch(1);
        AtomicInteger missing = new AtomicInteger(request.getIntValue("count"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            for (MessageExt message : messages) {
                long expected = next.getOrDefault(message.getQueueId(), 0L);
                if (message.getQueueOffset() != expected) {
                    wrong.incrementAndGet();
                }
                next.put(message.getQueueId(), message.getQueueOffset() + 1);
            }
            if (missing.addAndGet(-messages.size()) <= 0) {
                left.countDown();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        try {
            boolean all = left.await(request.getLongValue("timeoutMs"), TimeUnit.MILLISECONDS);
            return new JSONObject().fluentPut("all", all).fluentPut("wrong", wrong.get())
                .fluentPut("seconds", (System.nanoTime() - first.get()) / 1e9);
        } finally {
            consumer.shutdown();
        }
    }
}
