package congreve.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** How fast DefaultMQProducer sends: threads that each wait for every answer. */
final class Speed {
    private Speed() {
    }

    /** "threads" for "warmup" and then "seconds": messages, and quantiles of a send in us. */
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
}
