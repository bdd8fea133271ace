package congreve.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers that send to one queue, one message after the other, through all failures. */
final class Steady {
    private static final int PAUSE_MS = 10;

    private final Map<String, Sender> senders = new ConcurrentHashMap<>();

    /** Start a producer that polls its route every pollMs. */
    JSONObject start(JSONObject request) throws Exception {
        Sender sender = new Sender(request);
        senders.put(request.getString("id"), sender);
        sender.thread.start();
        return new JSONObject();
    }

    /** When the first message that was sent after a time was acknowledged, in ms; 0: none yet. */
    JSONObject since(JSONObject request) {
        Sender sender = senders.get(request.getString("id"));
        synchronized (sender) {
            long after = request.getLongValue("afterMs");
            if (sender.after != after) {
                sender.after = after;
                sender.first = 0;
            }
            return new JSONObject().fluentPut("ms", sender.first).fluentPut("why", sender.why);
        }
    }

    /** Stop a producer. */
    JSONObject stop(JSONObject request) throws Exception {
        Sender sender = senders.remove(request.getString("id"));
        sender.thread.interrupt();
        sender.thread.join();
        return new JSONObject();
    }

    private static final class Sender {
        private final DefaultMQProducer producer = new DefaultMQProducer("steady");
        private final MessageQueue queue;
        private final Thread thread = new Thread(this::run);
        private long after = Long.MAX_VALUE;
        private long first;
        private String why = "";

        Sender(JSONObject request) throws Exception {
            producer.setNamesrvAddr(request.getString("namesrv"));
            producer.setInstanceName(UUID.randomUUID().toString());
            producer.setSendMsgTimeout(1_000);
            if (request.containsKey("pollMs")) {
                producer.setPollNameServerInterval(request.getIntValue("pollMs"));
            }
            queue = new MessageQueue(request.getString("topic"), request.getString("broker"), 0);
            producer.start();
        }

        private void run() {
            try {
                while (true) {
                    send(System.currentTimeMillis());
                    Thread.sleep(PAUSE_MS);
                }
            } catch (InterruptedException e) {
                producer.shutdown();
            }
        }

        private void send(long begun) throws InterruptedException {
            try {
                SendStatus status = producer.send(
                    new Message(queue.getTopic(), new byte[100]), queue).getSendStatus();
                note(begun, status == SendStatus.SEND_OK, status.name());
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                note(begun, false, e.toString());
            }
        }

        private synchronized void note(long begun, boolean acknowledged, String reason) {
            why = reason;
            if (acknowledged && first == 0 && begun >= after) {
                first = System.currentTimeMillis();
            }
        }
    }
}
