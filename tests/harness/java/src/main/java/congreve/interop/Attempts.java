package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** Producers that send one numbered message after the other through all failures, each once. */
final class Attempts {
    private static final int LARGEST = 100;

    private final Map<String, Sender> senders = new ConcurrentHashMap<>();

    /**
     * Start a producer of so many `threads`, with RocketMQ's settings except for those that are
     * given: retries, timeoutMs, pollMs, latencyFault. It sends to queue 0 of a `broker`, or where
     * it wants to.
     */
    JSONObject start(JSONObject request) throws Exception {
        senders.put(request.getString("id"), new Sender(request));
        return new JSONObject();
    }

    /**
     * What ended since the last call, each as [beganMs, endedMs, number, broker], in the order of
     * the ends; the broker is empty if the message was not acknowledged.
     */
    JSONObject take(JSONObject request) {
        return senders.get(request.getString("id")).take();
    }

    /** Stop a producer; what take() would return. */
    JSONObject stop(JSONObject request) throws Exception {
        return senders.remove(request.getString("id")).stop();
    }

    private static final class Sender {
        private final DefaultMQProducer producer = new DefaultMQProducer("attempts");
        private final List<Thread> threads = new ArrayList<>();
        private final AtomicInteger next = new AtomicInteger();
        private final String topic;
        private final MessageQueue queue;
        private final int pauseMs;
        private final int largest;
        private volatile boolean stopping;
        private JSONArray ended = new JSONArray();
        private String why = "";

        Sender(JSONObject request) throws Exception {
            producer.setNamesrvAddr(request.getString("namesrv"));
            producer.setInstanceName(UUID.randomUUID().toString());
            producer.setSendLatencyFaultEnable(request.getBooleanValue("latencyFault"));
            if (request.containsKey("retries")) {
                producer.setRetryTimesWhenSendFailed(request.getIntValue("retries"));
            }
            if (request.containsKey("timeoutMs")) {
                producer.setSendMsgTimeout(request.getIntValue("timeoutMs"));
            }
            if (request.containsKey("pollMs")) {
                producer.setPollNameServerInterval(request.getIntValue("pollMs"));
            }
            topic = request.getString("topic");
            String broker = request.getString("broker");
            queue = broker == null ? null : new MessageQueue(topic, broker, 0);
            pauseMs = request.getIntValue("pauseMs");
            largest = request.containsKey("largest") ? request.getIntValue("largest") : LARGEST;
            producer.start();
            for (int i = 0; i < Math.max(1, request.getIntValue("threads")); i++) {
                threads.add(new Thread(this::run));
            }
            threads.forEach(Thread::start);
        }

        synchronized JSONObject take() {
            JSONObject answer = new JSONObject().fluentPut("attempts", ended).fluentPut("why", why);
            ended = new JSONArray();
            return answer;
        }

        JSONObject stop() throws InterruptedException {
            stopping = true;
            for (Thread thread : threads) {
                thread.join();
            }
            producer.shutdown();
            return take();
        }

        private void run() {
            try {
                while (!stopping) {
                    attempt(next.getAndIncrement());
                    Thread.sleep(pauseMs);
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException("nothing interrupts a sender", e);
            }
        }

        private void attempt(int number) throws InterruptedException {
            byte[] body = Messages.numberedBody(number, (int) (number * 37L % largest));
            Message message = new Message(topic, body);
            long began = System.currentTimeMillis();
            String broker = "";
            String reason = "";
            try {
                SendResult result = queue == null
                    ? producer.send(message) : producer.send(message, queue);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    broker = result.getMessageQueue().getBrokerName();
                } else {
                    reason = result.getSendStatus().name();
                }
            } catch (RemotingException | MQBrokerException | MQClientException e) {
                reason = e.toString();
            }
            note(began, number, broker, reason);
        }

        private synchronized void note(long began, int number, String broker, String reason) {
            ended.add(new JSONArray().fluentAdd(began).fluentAdd(System.currentTimeMillis())
                .fluentAdd(number).fluentAdd(broker));
            if (!reason.isEmpty()) {
                why = reason;
            }
        }
    }
}
