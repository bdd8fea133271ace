import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.tools.ProducerPerformance;

/** Kafka's ProducerPerformance in as many threads as the first argument says, in one JVM. */
public class Producers {
    public static void main(String[] arguments) throws Exception {
        List<Thread> threads = new ArrayList<>();
        String[] own = java.util.Arrays.copyOfRange(arguments, 1, arguments.length);
        for (int i = 0; i < Integer.parseInt(arguments[0]); i++) {
            Thread thread = new Thread(() -> {
                try {
                    ProducerPerformance.main(own.clone());
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }
}
