package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply: responders that live from responderStart to responderStop, by their id. */
final class Requests {
    private static final String SHORT_BODY = "re: ";

    private final Map<String, Responder> responders = new ConcurrentHashMap<>();

    private static final class Responder {
        final ConcurrentLinkedQueue<JSONObject> sent = new ConcurrentLinkedQueue<>();
        final CountDownLatch released = new CountDownLatch(1);
        DefaultMQPushConsumer consumer;
        DefaultMQProducer producer;

        ConsumeConcurrentlyStatus reply(MessageExt request, int padding, long holdMs) {
            JSONObject result = new JSONObject();
            try {
                released.await(holdMs, TimeUnit.MILLISECONDS);
                String body = SHORT_BODY + new String(request.getBody(), StandardCharsets.UTF_8)
                    + "x".repeat(padding);
                Message reply = MessageUtil.createReplyMessage(
                    request, body.getBytes(StandardCharsets.UTF_8));
                SendResult answer = producer.send(reply, 15_000);
                result.putAll(Messages.toJson(answer));
            } catch (Exception e) {
                result.put("error", e + " caused by " + e.getCause());
            }
            sent.add(result);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }

    JSONObject start(JSONObject request) throws Exception {
        Responder responder = new Responder();
        int padding = request.getIntValue("padding");
        long holdMs = request.getLongValue("holdMs");
        responder.producer = producer(request, "responder-" + request.getString("id"));
        responder.consumer = new DefaultMQPushConsumer(
            null, request.getString("group"), Access.hook());
        responder.consumer.setNamesrvAddr(request.getString("namesrv"));
        responder.consumer.setInstanceName(UUID.randomUUID().toString());
        // A rebalance right behind the start may skip its heartbeat; until the next, pulls are
        // refused with SUBSCRIPTION_NOT_LATEST.
        responder.consumer.setHeartbeatBrokerInterval(1_000);
        responder.consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        responder.consumer.subscribe(request.getString("topic"), "*");
        responder.consumer.registerMessageListener((MessageListenerConcurrently) (messages, c) ->
            responder.reply(messages.get(0), padding, holdMs));
        responder.consumer.start();
        responders.put(request.getString("id"), responder);
        return new JSONObject();
    }

    /** Let the replies go that "holdMs" keeps back. */
    JSONObject release(JSONObject request) {
        responders.get(request.getString("id")).released.countDown();
        return new JSONObject();
    }

    /** How the replies so far were answered. */
    JSONObject sent(JSONObject request) {
        JSONArray sent = new JSONArray();
        sent.addAll(responders.get(request.getString("id")).sent);
        return new JSONObject().fluentPut("sent", sent);
    }

    JSONObject stop(JSONObject request) {
        Responder responder = responders.remove(request.getString("id"));
        responder.released.countDown();
        responder.consumer.shutdown();
        responder.producer.shutdown();
        return new JSONObject();
    }

    private static DefaultMQProducer producer(JSONObject request, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, Access.hook());
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setHeartbeatBrokerInterval(500);
        producer.start();
        return producer;
    }

    /** DefaultMQProducer.request() for each body: mode sync or async; replies in order. */
    JSONObject request(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request, "requester");
        long timeout = request.getLongValue("timeoutMs");
        try {
            JSONArray replies = new JSONArray();
            for (Object body : request.getJSONArray("bodies")) {
                Message message = new Message(request.getString("topic"),
                    ((String) body).getBytes(StandardCharsets.UTF_8));
                replies.add("async".equals(request.getString("mode"))
                    ? async(producer, message, timeout) : sync(producer, message, timeout));
            }
            return new JSONObject().fluentPut("replies", replies);
        } finally {
            producer.shutdown();
        }
    }

    private static JSONObject sync(DefaultMQProducer producer, Message message, long timeout)
        throws Exception {
        try {
            // Without a selector 4.9.4 returns the request itself as soon as it is sent.
            return Messages.toJson((MessageExt) producer.request(
                message, (queues, m, argument) -> queues.get(0), null, timeout));
        } catch (RequestTimeoutException e) {
            return new JSONObject().fluentPut("timeout", e.getErrorMessage());
        }
    }

    private static JSONObject async(DefaultMQProducer producer, Message message, long timeout)
        throws Exception {
        JSONObject[] outcome = new JSONObject[1];
        CountDownLatch done = new CountDownLatch(1);
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                outcome[0] = Messages.toJson((MessageExt) reply);
                done.countDown();
            }

            @Override
            public void onException(Throwable e) {
                outcome[0] = new JSONObject().fluentPut("timeout", e.toString());
                done.countDown();
            }
        }, timeout);
        done.await(timeout + 10_000, TimeUnit.MILLISECONDS);
        return outcome[0];
    }
}
