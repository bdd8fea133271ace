package congreve.interop5;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * The client and mqadmin of RocketMQ 5 behind one JVM: each line on standard input is a JSON
 * request {"do": NAME, ...}, each line on standard output its JSON answer.
 */
public final class Driver {
    interface Command {
        JSONObject run(JSONObject request) throws Exception;
    }

    private static final Members MEMBERS = new Members();

    private static final Map<String, Command> COMMANDS = Map.of(
        "memberStart", MEMBERS::start,
        "memberSeen", MEMBERS::seen,
        "memberStop", MEMBERS::stop,
        "litePull", LitePulls::read,
        "mqadmin", Mqadmin::run);

    private Driver() {
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(
            new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(answer(JSON.parseObject(line)).toJSONString());
        }
        // Client threads are not daemons: the end of the requests is the end of the process.
        Runtime.getRuntime().halt(0);
    }

    private static JSONObject answer(JSONObject request) {
        try {
            return COMMANDS.get(request.getString("do")).run(request);
        } catch (Exception e) {
            e.printStackTrace();
            return JSONObject.of("error", e.toString());
        }
    }
}
