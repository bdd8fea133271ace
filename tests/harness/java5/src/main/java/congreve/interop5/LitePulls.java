package congreve.interop5;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** DefaultLitePullConsumer of RocketMQ 5. */
final class LitePulls {
    private LitePulls() {
    }

    /** A member of a group polls until it has so many messages, at most timeoutMs; then commits. */
    static JSONObject read(JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setAutoCommit(false);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.start();
        JSONArray bodies = new JSONArray();
        try {
            long end = System.nanoTime() + request.getLongValue("timeoutMs") * 1_000_000L;
            while (bodies.size() < request.getIntValue("expected") && System.nanoTime() < end) {
                for (MessageExt message : consumer.poll(100)) {
                    bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
                }
            }
            consumer.commit();
        } finally {
            consumer.shutdown();
        }
        return JSONObject.of("bodies", bodies);
    }
}
