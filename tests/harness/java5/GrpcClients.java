import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The official gRPC client: a producer of all types, a push and a simple consumer. Each line of the
 * input is `"do": "send"` or `"do": "received"`; the answer is a line of JSON.
 */
public class GrpcClients {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    public static void main(String[] args) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(args[0])
            .setCredentialProvider(new StaticSessionCredentialsProvider(args[1], args[2]))
            .setRequestTimeout(Duration.ofSeconds(10))
            .build();
        Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics("Normal", "Fifo", "Delay", "Trans")
            .setTransactionChecker(half -> TransactionResolution.COMMIT)
            .build();
        ConcurrentSkipListSet<String> pushed = new ConcurrentSkipListSet<>();
        FilterExpression all = new FilterExpression("*");
        PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("pushed")
            .setSubscriptionExpressions(
                Map.of("Normal", all, "Fifo", all, "Delay", all, "Trans", all))
            .setMessageListener(view -> {
                pushed.add(text(view));
                // The first delivery of one fails.
                boolean fails = text(view).startsWith("n0") && view.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
        SimpleConsumer simple = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("simple")
            .setAwaitDuration(Duration.ofSeconds(1))
            .setSubscriptionExpressions(Map.of("Normal", new FilterExpression("tag")))
            .build();
        TreeSet<String> received = new TreeSet<>();
        int round = 0;
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            if (lines.nextLine().contains("send")) {
                while (!isSent(producer, round)) {
                    Thread.sleep(200);
                }
                round++;
                System.out.println("{\"sent\": true}");
            } else {
                try {
                    for (MessageView view : simple.receive(16, Duration.ofSeconds(30))) {
                        simple.ack(view);
                        received.add(text(view));
                    }
                } catch (ClientException | RuntimeException e) {
                    Thread.sleep(200);
                }
                System.out.printf("{\"pushed\": [%s], \"received\": [%s]}%n",
                    quoted(pushed), quoted(received));
            }
        }
        System.exit(0);
    }

    /**
     * Whether all were sent; a client that has lost its connection fails at once for a while, with
     * gRPC's own unchecked exception.
     */
    private static boolean isSent(Producer producer, int round) {
        try {
            send(producer, round);
            return true;
        } catch (ClientException | RuntimeException e) {
            return false;
        }
    }

    private static void send(Producer producer, int round) throws ClientException {
        for (int i = 0; i < 3; i++) {
            producer.send(message("Normal", "n" + i + "-" + round).build());
            producer.send(message("Fifo", "f" + i + "-" + round).setMessageGroup("group").build());
        }
        long due = System.currentTimeMillis() + 3000;
        SendReceipt recalled = producer.send(
            message("Delay", "recalled-" + round).setDeliveryTimestamp(due).build());
        producer.recallMessage("Delay", recalled.getRecallHandle());
        producer.send(message("Delay", "d-" + round).setDeliveryTimestamp(due).build());
        Transaction committed = producer.beginTransaction();
        producer.send(message("Trans", "t-" + round).build(), committed);
        committed.commit();
        Transaction rolledBack = producer.beginTransaction();
        producer.send(message("Trans", "never-" + round).build(), rolledBack);
        rolledBack.rollback();
        // Its end is asked for.
        producer.send(message("Trans", "asked-" + round).build(), producer.beginTransaction());
    }

    private static MessageBuilder message(String topic, String text) {
        return PROVIDER.newMessageBuilder()
            .setTopic(topic)
            .setTag("tag")
            .setKeys("key-" + text)
            .addProperty("colour", "blue")
            .setBody(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(MessageView view) {
        boolean whole = view.getTag().orElse("").equals("tag")
            && "blue".equals(view.getProperties().get("colour"))
            && view.getKeys().size() == 1;
        String body = StandardCharsets.UTF_8.decode(view.getBody()).toString();
        return whole ? body : "damaged " + body;
    }

    private static String quoted(Iterable<String> texts) {
        List<String> found = new ArrayList<>();
        texts.forEach(each -> found.add('"' + each + '"'));
        return String.join(", ", found);
    }
}
