package congreve.interop;

import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin as an operator calls it, its output caught. */
final class Mqadmin extends MQAdminStartup {
    private Mqadmin() {
    }

    static JSONObject run(JSONObject request) {
        ByteArrayOutputStream caught = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        PrintStream stream = new PrintStream(caught, true, StandardCharsets.UTF_8);
        // A command of an earlier run may hold a client that it has shut down.
        subCommandList.clear();
        System.setOut(stream);
        System.setErr(stream);
        try {
            main(request.getJSONArray("args").toArray(new String[0]));
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return new JSONObject().fluentPut("out", caught.toString(StandardCharsets.UTF_8));
    }
}
