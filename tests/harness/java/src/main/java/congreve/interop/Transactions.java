package congreve.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * TransactionMQProducers that live from transactionStart to transactionStop, by their id. A
 * message's property "local" says how its local transaction ends (commit, rollback, unknown); a
 * check is answered with what transactionAnswer said last, at first unknown.
 */
final class Transactions {
    private static final int TIMEOUT_MS = 10_000;
    private static final Map<String, LocalTransactionState> STATES = Map.of(
        "commit", LocalTransactionState.COMMIT_MESSAGE,
        "rollback", LocalTransactionState.ROLLBACK_MESSAGE,
        "unknown", LocalTransactionState.UNKNOW);

    private final Map<String, Session> sessions = new ConcurrentHashMap<>();

    private static final class Session implements TransactionListener {
        final ConcurrentLinkedQueue<JSONObject> checks = new ConcurrentLinkedQueue<>();
        volatile String answer = "unknown";
        TransactionMQProducer producer;

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return STATES.get(message.getUserProperty("local"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.add(Messages.toJson(message)
                .fluentPut("transactionId", message.getTransactionId())
                .fluentPut("answer", answer));
            return STATES.get(answer);
        }
    }

    JSONObject start(JSONObject request) throws Exception {
        Session session = new Session();
        TransactionMQProducer producer = new TransactionMQProducer(
            request.getString("group"), Access.hook());
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setHeartbeatBrokerInterval(500);
        producer.setPollNameServerInterval(1000);
        producer.setTransactionListener(session);
        session.producer = producer;
        producer.start();
        sessions.put(request.getString("id"), session);
        if (request.containsKey("topic")) {
            // A producer's heartbeats go to the brokers of the topics that it knows.
            producer.fetchPublishMessageQueues(request.getString("topic"));
        }
        return new JSONObject();
    }

    JSONObject send(JSONObject request) throws Exception {
        Session session = sessions.get(request.getString("id"));
        JSONArray results = new JSONArray();
        for (Message message : Messages.fromJson(request.getJSONArray("messages"))) {
            TransactionSendResult result =
                session.producer.sendMessageInTransaction(message, null);
            results.add(Messages.toJson(result)
                .fluentPut("local", result.getLocalTransactionState().name()));
        }
        return new JSONObject().fluentPut("results", results);
    }

    JSONObject answer(JSONObject request) {
        sessions.get(request.getString("id")).answer = request.getString("answer");
        return new JSONObject();
    }

    /** All checks so far. */
    JSONObject checks(JSONObject request) {
        JSONArray checks = new JSONArray();
        checks.addAll(sessions.get(request.getString("id")).checks);
        return new JSONObject().fluentPut("checks", checks);
    }

    JSONObject stop(JSONObject request) {
        sessions.remove(request.getString("id")).producer.shutdown();
        return new JSONObject();
    }
}
