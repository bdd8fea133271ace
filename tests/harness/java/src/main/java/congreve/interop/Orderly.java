package congreve.interop;

import com.alibaba.fastjson.JSONObject;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** One orderly member that writes down what it consumes, so that it may be killed. */
final class Orderly {
    private DefaultMQPushConsumer member;

    /** Each consumed message becomes a line "nanoTime queueId number" of the journal. */
    JSONObject start(JSONObject request) throws Exception {
        OutputStream journal = new FileOutputStream(request.getString("journal"), true);
        member = new DefaultMQPushConsumer(
            null, request.getString("group"), Access.hook());
        member.setNamesrvAddr(request.getString("namesrv"));
        member.setInstanceName(UUID.randomUUID().toString());
        // Pulls may be refused until the next heartbeat: see Requests.start().
        member.setHeartbeatBrokerInterval(1_000);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setPersistConsumerOffsetInterval(1_000);
        member.subscribe(request.getString("topic"), "*");
        member.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    String line = System.nanoTime() + " " + message.getQueueId() + " "
                        + Messages.numberOf(message) + "\n";
                    journal.write(line.getBytes(StandardCharsets.US_ASCII));
                }
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        member.start();
        return new JSONObject();
    }

    JSONObject stop(JSONObject request) {
        member.shutdown();
        return new JSONObject();
    }
}
