package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** Sends through DefaultMQProducer. */
final class Producers {
    private static final int TIMEOUT_MS = 10_000;
    private static final int IN_FLIGHT = 256;

    /** Producers that stay between requests, by id. */
    private static final Map<String, DefaultMQProducer> KEPT = new HashMap<>();

    private Producers() {
    }

    private interface Work {
        JSONObject run(DefaultMQProducer producer) throws Exception;
    }

    /** A producer as users have it, with RocketMQ's retries and timeout, which stays. */
    static JSONObject start(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("id"), Access.hook());
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.start();
        KEPT.put(request.getString("id"), producer);
        return new JSONObject();
    }

    static JSONObject stop(JSONObject request) {
        KEPT.remove(request.getString("id")).shutdown();
        return new JSONObject();
    }

    private static JSONObject with(JSONObject request, Work work) throws Exception {
        if (request.containsKey("producer")) {
            return work.run(KEPT.get(request.getString("producer")));
        }
        String group = request.getString("group");
        DefaultMQProducer producer = new DefaultMQProducer(
            group == null ? "interop-producer" : group, Access.hook(),
            request.getBooleanValue("trace"), null);
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        if (request.containsKey("pollMs")) {
            producer.setPollNameServerInterval(request.getIntValue("pollMs"));
        }
        if (request.containsKey("compressOver")) {
            producer.setCompressMsgBodyOverHowmuch(request.getIntValue("compressOver"));
        }
        producer.start();
        try {
            return work.run(producer);
        } finally {
            // The end of a producer drops the last records of its trace.
            if (!request.getBooleanValue("trace")) {
                producer.shutdown();
            }
        }
    }

    /**
     * The given messages one after another; to one queue where queueId is given, by the producer
     * that was started with the id `producer` if there is one.
     */
    static JSONObject send(JSONObject request) throws Exception {
        List<Message> messages = Messages.fromJson(request.getJSONArray("messages"));
        Integer queueId = request.getInteger("queueId");
        return with(request, producer -> {
            JSONArray results = new JSONArray();
            for (Message message : messages) {
                SendResult result = queueId == null
                    ? producer.send(message)
                    : producer.send(
                        message, (queues, m, id) -> queueWithId(queues, (Integer) id), queueId);
                results.add(Messages.toJson(result));
            }
            return new JSONObject().fluentPut("results", results);
        });
    }

    /** The given messages as one batch. */
    static JSONObject batch(JSONObject request) throws Exception {
        List<Message> messages = Messages.fromJson(request.getJSONArray("messages"));
        return with(request, producer ->
            new JSONObject().fluentPut("result", Messages.toJson(producer.send(messages))));
    }

    /**
     * Batches of numbered messages for so many ms, some hundred a second, whatever becomes of the
     * broker meanwhile: those that were acknowledged, and how many were not. No number is sent
     * twice.
     */
    static JSONObject batchesFor(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        int size = request.getIntValue("size");
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(request.getLongValue("ms"));
        return with(request, producer -> {
            JSONArray results = new JSONArray();
            int failed = 0;
            for (int number = 0; System.nanoTime() < end; number += size) {
                List<Message> batch = new ArrayList<>(size);
                for (int i = number; i < number + size; i++) {
                    batch.add(new Message(topic, Messages.numberedBody(i, i % 97)));
                }
                try {
                    results.add(Messages.toJson(producer.send(batch)).fluentPut("first", number));
                } catch (RemotingException | MQBrokerException | MQClientException e) {
                    failed++;
                }
                Thread.sleep(4);
            }
            return new JSONObject().fluentPut("results", results).fluentPut("failed", failed);
        });
    }

    /**
     * Numbered messages: mode sync, async, oneway, ordered (queue = number % lanes by a selector)
     * or batch (32 a batch).
     */
    static JSONObject load(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        int count = request.getIntValue("count");
        int size = request.getIntValue("size");
        String tag = request.getString("tag");
        String keys = request.getString("keys");
        List<Message> messages = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, tag, keys == null ? "" : keys + i,
                Messages.numberedBody(i, size));
            messages.add(message);
        }
        long start = System.nanoTime();
        JSONObject answer = with(request, producer -> switch (request.getString("mode")) {
            case "sync" -> sync(producer, messages);
            case "async" -> async(producer, messages);
            case "oneway" -> oneway(producer, messages);
            case "ordered" -> ordered(producer, messages, request.getIntValue("lanes"));
            case "batch" -> batches(producer, messages);
            default -> throw new IllegalArgumentException("mode " + request.getString("mode"));
        });
        return answer.fluentPut("seconds", (System.nanoTime() - start) / 1e9);
    }

    private static JSONObject sync(DefaultMQProducer producer, List<Message> messages)
        throws Exception {
        int ok = 0;
        for (Message message : messages) {
            ok += producer.send(message).getSendStatus() == SendStatus.SEND_OK ? 1 : 0;
        }
        return new JSONObject().fluentPut("ok", ok);
    }

    private static JSONObject async(DefaultMQProducer producer, List<Message> messages)
        throws Exception {
        AtomicInteger ok = new AtomicInteger();
        ConcurrentLinkedQueue<String> errors = new ConcurrentLinkedQueue<>();
        CountDownLatch open = new CountDownLatch(messages.size());
        Semaphore inFlight = new Semaphore(IN_FLIGHT);
        for (Message message : messages) {
            inFlight.acquire();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        ok.incrementAndGet();
                    } else {
                        errors.add(result.getSendStatus().name());
                    }
                    done();
                }

                @Override
                public void onException(Throwable e) {
                    errors.add(e.toString());
                    done();
                }

                private void done() {
                    inFlight.release();
                    open.countDown();
                }
            });
        }
        boolean all = open.await(120, TimeUnit.SECONDS);
        return new JSONObject().fluentPut("ok", ok.get()).fluentPut("all", all)
            .fluentPut("errors", new JSONArray(new ArrayList<>(errors)));
    }

    private static JSONObject oneway(DefaultMQProducer producer, List<Message> messages)
        throws Exception {
        for (Message message : messages) {
            producer.sendOneway(message);
        }
        return new JSONObject().fluentPut("ok", messages.size());
    }

    private static JSONObject ordered(DefaultMQProducer producer, List<Message> messages, int lanes)
        throws Exception {
        int ok = 0;
        for (int i = 0; i < messages.size(); i++) {
            SendResult result = producer.send(messages.get(i),
                (queues, message, lane) -> queueWithId(queues, (Integer) lane), i % lanes);
            boolean right = result.getMessageQueue().getQueueId() == i % lanes;
            ok += right && result.getSendStatus() == SendStatus.SEND_OK ? 1 : 0;
        }
        return new JSONObject().fluentPut("ok", ok);
    }

    private static JSONObject batches(DefaultMQProducer producer, List<Message> messages)
        throws Exception {
        int ok = 0;
        for (int from = 0; from < messages.size(); from += 32) {
            List<Message> batch = messages.subList(from, Math.min(from + 32, messages.size()));
            SendResult result = producer.send(new ArrayList<>(batch));
            boolean right = result.getOffsetMsgId().split(",").length == batch.size();
            ok += right && result.getSendStatus() == SendStatus.SEND_OK ? batch.size() : 0;
        }
        return new JSONObject().fluentPut("ok", ok);
    }

    private static MessageQueue queueWithId(List<MessageQueue> queues, int id) {
        return queues.stream().filter(queue -> queue.getQueueId() == id).findFirst().orElseThrow();
    }
}
