package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A DefaultMQPushConsumer that fails on purpose. */
final class Retries {
    private Retries() {
    }

    /**
     * Consumes until `expected` attempts were made, at most timeoutMs; then a moment more. Numbers
     * in `rejects` are answered RECONSUME_LATER each time (with delayLevel where it is given).
     * Every attempt is reported with what the listener saw.
     */
    static JSONObject run(JSONObject request) throws Exception {
        ConcurrentLinkedQueue<JSONObject> attempts = new ConcurrentLinkedQueue<>();
        JSONArray rejects = request.getJSONArray("rejects");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        // Pulls may be refused until the next heartbeat: see Requests.start().
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(request.getIntValue("maxReconsumeTimes"));
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean rejected = false;
            for (MessageExt message : messages) {
                attempts.add(Messages.toJson(message)
                    .fluentPut("number", Messages.numberOf(message))
                    .fluentPut("atMs", System.currentTimeMillis()));
                rejected |= rejects.contains(Messages.numberOf(message));
            }
            if (request.containsKey("delayLevel")) {
                context.setDelayLevelWhenNextConsume(request.getIntValue("delayLevel"));
            }
            return rejected ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            long end = System.nanoTime() + request.getLongValue("timeoutMs") * 1_000_000L;
            while (attempts.size() < request.getIntValue("expected") && System.nanoTime() < end) {
                Thread.sleep(20);
            }
            Thread.sleep(request.getLongValue("quietMs"));
        } finally {
            consumer.shutdown();
        }
        JSONArray all = new JSONArray();
        all.addAll(attempts);
        return new JSONObject().fluentPut("attempts", all);
    }
}
