// RocketMQ's own Java client with a Congreve broker: nothing in it is special.
//
// Start `congreve run`, then, with the jars of org.apache.rocketmq:rocketmq-client:4.9.4 and of its
// dependencies in a folder (`make test` puts them into build/interop/java/lib):
//
//     java -cp 'build/interop/java/lib/*' examples/java/SendReceive.java 127.0.0.1:9876

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class SendReceive {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("writers");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        producer.send(new Message("orders", "hello from Java".getBytes(StandardCharsets.UTF_8)));
        producer.shutdown();

        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("readers");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("orders", "*");
        consumer.start();
        for (MessageExt message : consumer.poll(20_000)) {
            System.out.println(new String(message.getBody(), StandardCharsets.UTF_8));
        }
        consumer.shutdown();
    }
}
