package congreve.interop5;

import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin of RocketMQ 5 as an operator calls it, its output caught. */
final class Mqadmin extends MQAdminStartup {
    private Mqadmin() {
    }

    static JSONObject run(JSONObject request) {
        String[] args = request.getJSONArray("args").toArray(String[]::new);
        ByteArrayOutputStream caught = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        PrintStream stream = new PrintStream(caught, true, StandardCharsets.UTF_8);
        // A command of an earlier run may hold a client that it has shut down.
        SUB_COMMANDS.clear();
        System.setOut(stream);
        System.setErr(stream);
        try {
            main(args);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return JSONObject.of("out", caught.toString(StandardCharsets.UTF_8));
    }
}
