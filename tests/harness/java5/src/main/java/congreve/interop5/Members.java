package congreve.interop5;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * DefaultMQPushConsumers from memberStart to memberStop, by their id. With "pop" the broker
 * balances them, which is what lets a member pop once setConsumeMode has said so.
 */
final class Members {
    private final Map<String, Member> members = new ConcurrentHashMap<>();

    /** A listener that notes what it gets; it fails on the first `failures` attempts of each. */
    private static final class Member implements MessageListenerConcurrently {
        final DefaultMQPushConsumer consumer;
        final ConcurrentLinkedQueue<JSONObject> seen = new ConcurrentLinkedQueue<>();
        private final int failures;

        Member(DefaultMQPushConsumer consumer, int failures) {
            this.consumer = consumer;
            this.failures = failures;
        }

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(
            List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            for (MessageExt message : messages) {
                seen.add(JSONObject.of(
                    "body", new String(message.getBody(), StandardCharsets.UTF_8),
                    "topic", message.getTopic(),
                    "popped", message.getProperty("POP_CK") != null,
                    "times", message.getReconsumeTimes()));
            }
            return messages.get(0).getReconsumeTimes() < failures
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }

    JSONObject start(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setClientRebalance(!request.getBooleanValue("pop"));
        consumer.setPopInvisibleTime(request.getLongValue("invisibleMs", 60_000));
        consumer.subscribe(request.getString("topic"), request.getString("tags"));
        Member member = new Member(consumer, request.getIntValue("failures"));
        consumer.registerMessageListener(member);
        consumer.start();
        members.put(request.getString("id"), member);
        return new JSONObject();
    }

    /** What the member's listener has got so far. */
    JSONObject seen(JSONObject request) {
        Member member = members.get(request.getString("id"));
        return JSONObject.of("seen", new JSONArray(List.copyOf(member.seen)));
    }

    JSONObject stop(JSONObject request) {
        members.remove(request.getString("id")).consumer.shutdown();
        return new JSONObject();
    }
}
