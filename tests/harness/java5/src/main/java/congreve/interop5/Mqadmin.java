package congreve.interop5;

import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin of RocketMQ 5 as an operator calls it, its output caught. */
final class Mqadmin extends MQAdminStartup {
    private static final int LOOK_MS = 20;

    private Mqadmin() {
    }

    /** A command that has no end of its own is interrupted once it has printed `lines` lines. */
    static JSONObject run(JSONObject request) throws InterruptedException {
        String[] args = request.getJSONArray("args").toArray(new String[0]);
        int lines = request.getIntValue("lines");
        ByteArrayOutputStream caught = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        PrintStream stream = new PrintStream(caught, true, StandardCharsets.UTF_8);
        // A command of an earlier run may hold a client that it has shut down.
        SUB_COMMANDS.clear();
        System.setOut(stream);
        System.setErr(stream);
        try {
            Thread command = new Thread(() -> main(args), "mqadmin");
            command.start();
            while (lines > 0 && command.isAlive()) {
                if (caught.toString(StandardCharsets.UTF_8).lines().count() >= lines) {
                    command.interrupt();
                }
                command.join(LOOK_MS);
            }
            command.join();
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return new JSONObject().fluentPut("out", caught.toString(StandardCharsets.UTF_8));
    }
}
