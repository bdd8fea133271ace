import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Scanner;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The official gRPC client: a producer to lite topics and two members of a group of them, of which
 * the first one subscribes to a and b. Each line of the input is `"do": "send"`, which sends a
 * message to a, b and c, `"do": "take"`, which lets the second one subscribe to b, or
 * `"do": "received"`; the answer is a line of JSON.
 */
public class LiteClients {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    public static void main(String[] args) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(args[0])
            .setRequestTimeout(Duration.ofSeconds(10))
            .build();
        Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics("Lite")
            .build();
        ConcurrentSkipListSet<String> first = new ConcurrentSkipListSet<>();
        ConcurrentSkipListSet<String> second = new ConcurrentSkipListSet<>();
        LitePushConsumer one = consumer(configuration, first);
        LitePushConsumer two = consumer(configuration, second);
        one.subscribeLite("a");
        one.subscribeLite("b");
        int round = 0;
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String line = lines.nextLine();
            if (line.contains("\"send\"")) {
                for (String name : new String[] {"a", "b", "c"}) {
                    send(producer, name, name + "-" + round);
                }
                round++;
                System.out.println("{}");
            } else if (line.contains("\"take\"")) {
                two.subscribeLite("b");
                System.out.println("{}");
            } else {
                Thread.sleep(500);
                System.out.println("{\"first\": " + json(first) + ", \"second\": " + json(second)
                    + ", \"subscribed\": " + json(one.getLiteTopicSet()) + "}");
            }
        }
        one.close();
        two.close();
        producer.close();
        System.exit(0);
    }

    private static LitePushConsumer consumer(
            ClientConfiguration configuration, ConcurrentSkipListSet<String> found)
            throws ClientException {
        return PROVIDER.newLitePushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("g")
            .bindTopic("Lite")
            .setMessageListener(view -> {
                found.add(view.getLiteTopic().orElse("") + ":" + text(view) + ":"
                    + view.getDeliveryAttempt());
                // The first delivery of one fails.
                boolean fails = text(view).equals("a-0") && view.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
    }

    private static void send(Producer producer, String lite, String text) throws ClientException {
        producer.send(PROVIDER.newMessageBuilder()
            .setTopic("Lite")
            .setLiteTopic(lite)
            .setBody(text.getBytes(StandardCharsets.UTF_8))
            .build());
    }

    private static String text(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    private static String json(Iterable<String> texts) {
        return "[\"" + String.join("\", \"", texts) + "\"]";
    }
}
